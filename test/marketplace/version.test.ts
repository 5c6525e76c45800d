import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { parsePluginYaml } from '../../src/core/content/plugin-yaml.ts'
import { DeployError } from '../../src/core/errors.ts'
import { decideVersion } from '../../src/marketplace/version.ts'

function refusedWith(code: string) {
  return (error: unknown): boolean => error instanceof DeployError && error.code === code
}

function claims(asked: string | undefined, headerVersion: string | undefined, listed?: string) {
  return { asked, listed, served: { headerVersion } }
}

describe('decideVersion', () => {
  const decided: [string | undefined, string | undefined, string | undefined, string, string][] = [
    ['1.4.0', '9.9.9', 'version: "1.4.0"', '1.4.0', 'plugin.yaml'],
    ['v1.4.0', undefined, 'version: 1.4.0', '1.4.0', 'plugin.yaml'],
    ['1.4.0', undefined, 'version: v1.4.0', 'v1.4.0', 'plugin.yaml'],
    ['1.10', undefined, 'version: "1.10"', '1.10', 'plugin.yaml'],
    ['1.1', undefined, 'version: 1.10', '1.1', 'plugin.yaml'],
    [undefined, undefined, 'version: 1.10', '1.1', 'plugin.yaml'],
    ['1.4.0', '1.4.0', 'name: x', '1.4.0', 'header'],
    ['1.4.0', undefined, 'name: x', '1.4.0', 'requested'],
    ['1.4.0', 'v1.4.0', undefined, 'v1.4.0', 'header'],
    [undefined, '1.4.0', undefined, '1.4.0', 'header'],
    [undefined, 'v1.4.0', 'version: 1.4.0', '1.4.0', 'plugin.yaml'],
    ['1.4.0', '1.4.1', undefined, '1.4.1', 'header'],
    ['1.4.0', '1.4.1', 'name: x', '1.4.1', 'header'],
    ['1.4.0', undefined, undefined, '1.4.0', 'requested'],
  ]
  for (const [asked, header, yaml, version, source] of decided) {
    it(`asked ${asked}, header ${header}, ${yaml}: ${version} (${source})`, () => {
      const plugin = yaml === undefined ? undefined : parsePluginYaml(yaml)
      assert.deepEqual(decideVersion(claims(asked, header), plugin), { version, source })
    })
  }

  const refused: [string | undefined, string | undefined, string | undefined, string][] = [
    ['1.4.0', undefined, 'version: "1.4.1"', 'version_mismatch'],
    ['1.4.0', '1.4.0', 'version: "1.4.1"', 'version_mismatch'],
    [undefined, '1.4.0', 'version: "1.4.1"', 'version_mismatch'],
    ['1.10', '1.10', 'version: 1.10', 'version_mismatch'],
    [undefined, undefined, 'version: "../../x"', 'version_mismatch'],
    [undefined, undefined, 'version: ""', 'version_mismatch'],
    [undefined, undefined, undefined, 'no_published_version'],
    [undefined, undefined, 'name: x', 'no_published_version'],
  ]
  for (const [asked, header, yaml, code] of refused) {
    it(`asked ${asked}, header ${header}, ${yaml}: ${code}`, () => {
      const plugin = yaml === undefined ? undefined : parsePluginYaml(yaml)
      assert.throws(() => decideVersion(claims(asked, header), plugin), refusedWith(code))
    })
  }

  it('says whether plugin.yaml names another version or an invalid one', () => {
    const wrong = parsePluginYaml('version: "../../x"')
    const invalid =
      /^The artifact's plugin\.yaml says version "\.\.\/\.\.\/x", which no hub or host accepts as a version: /
    assert.throws(() => decideVersion(claims(undefined, undefined), wrong), { message: invalid })
    const other = /^The requested version is 1\.4\.0, but the artifact's plugin\.yaml says "\.\.\/\.\.\/x": /
    assert.throws(() => decideVersion(claims('1.4.0', undefined), wrong), { message: other })
  })

  it('says why a number is another version than the requested one', () => {
    const message = /plugin\.yaml says "1\.1" \(without quotes, it is a number, and loses its final zeros\): /
    assert.throws(() => decideVersion(claims('1.10', undefined), parsePluginYaml('version: 1.10')), { message })
  })

  it('uses the listed version for latest only if neither the header nor plugin.yaml names one', () => {
    const yaml = parsePluginYaml('version: 1.3.0')
    const listed = (header?: string) => claims(undefined, header, '1.4.0')
    assert.deepEqual(decideVersion(listed(), undefined), { version: '1.4.0', source: 'requested' })
    assert.deepEqual(decideVersion(listed('1.2.0'), undefined), { version: '1.2.0', source: 'header' })
    assert.deepEqual(decideVersion(listed(), yaml), { version: '1.3.0', source: 'plugin.yaml' })
  })
})
