import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { parseHostConfig } from '../../../src/core/plan/host-config.ts'
import { describeService, serviceOf } from '../../../src/install/services/service.ts'

/** How the service of `web` is called on a host with this config. */
function named(config: string, isProjectWide = false): string | undefined {
  const service = serviceOf(parseHostConfig(`version: 1\n${config}`, 'host-config.yaml'), 'web', isProjectWide)
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

  it('is the project-wide unit where a step names no plugin, if there is one', () => {
    const config = 'supervisor: systemd\nsystemd: {project_unit: app.service}\nplugins: {web: {unit: own.service}}'
    assert.equal(named(config, true), 'unit app.service')
    assert.equal(named(config, false), 'unit own.service')
    assert.equal(named('supervisor: systemd', true), 'unit web.service')
  })
})
