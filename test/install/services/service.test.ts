import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { parseHostConfig } from '../../../src/core/plan/host-config.ts'
import { describeService, projectServiceOf, serviceOf } from '../../../src/install/services/service.ts'

/** Describes the service of `web` on a host with this config; undefined if `web` has no service. */
function named(config: string, find = serviceOf): string | undefined {
  const service = find(parseHostConfig(`version: 1\n${config}`, 'host-config.yaml'), 'web')
  return service && describeService(service)
}

describe('serviceOf', () => {
  const rows: [string, string | undefined][] = [
    ['', undefined],
    ['supervisor: none', undefined],
    ['supervisor: systemd', 'unit web.service'],
    ['supervisor: systemd\nsystemd: {scope: user, unit: "app-{id}@{id}.service"}', 'user unit app-web@web.service'],
    ['supervisor: systemd\nplugins: {web: {unit: own.service}}', 'unit own.service'],
    ['supervisor: systemd\nplugins: {web: {unit: "own-{id}.service"}}', 'unit own-web.service'],
    ['supervisor: systemd\nplugins: {other: {unit: own.service}}', 'unit web.service'],
    ['supervisor: docker', 'container web'],
    ['supervisor: docker\ndocker: {container: "app_{id}"}', 'container app_web'],
    ['supervisor: docker\nplugins: {web: {container: own}}', 'container own'],
    ['supervisor: kubernetes', 'deployment default/web'],
    ['supervisor: kubernetes\nkubernetes: {namespace: apps, deployment: "{id}-v1"}', 'deployment apps/web-v1'],
    ['supervisor: kubernetes\nplugins: {web: {deployment: own}}', 'deployment default/own'],
  ]
  for (const [config, expected] of rows) {
    it(`${JSON.stringify(config)}: ${expected}`, () => assert.equal(named(config), expected))
  }
})

describe('projectServiceOf', () => {
  it('finds the project-wide unit, if there is one', () => {
    const config = 'supervisor: systemd\nsystemd: {project_unit: app.service}\nplugins: {web: {unit: own.service}}'
    assert.equal(named(config, projectServiceOf), 'unit app.service')
    assert.equal(named(config, serviceOf), 'unit own.service')
    assert.equal(named('supervisor: systemd', projectServiceOf), 'unit web.service')
    assert.equal(named('', projectServiceOf), undefined)
  })
})
