import assert from 'node:assert/strict'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { requireDeployable } from '../../../hub/marketplace/publish.ts'
import { parsePluginYaml } from '../../../src/core/content/plugin-yaml.ts'
import { isCovered, needsPluginSig } from '../../../src/install/steps/plugin-sig.ts'
import { deployArtifact } from '../../../src/marketplace/deploy.ts'
import { ACCEPTED_ZIPS } from '../../archives/accepted-zips.ts'
import { HOSTILE_ZIPS } from '../../archives/hostile-zips.ts'
import { buildZip, directory, file, symlink, type ZipItem } from '../../archives/zip-builder.ts'
import { PLUGIN_PLAN, SIGNING_SECRET } from '../../e2e/harness/stage.ts'
import { serveArtifact, serveUntrustedHub } from '../../e2e/harness/untrusted-hub.ts'
import { sampled } from '../../extent.ts'
import { temporaryDirectory } from '../../folders.ts'
import { toolsOf } from '../../install/prepared-deployment.ts'
import { collectLog } from '../../install/prepared-host.ts'
import { deployRequest } from '../../marketplace/deploy-request.ts'
import { createTestedWire } from '../../net/tested-wire.ts'
import { hub } from '../run-cli.ts'
import { newFolder } from '../running-hub.ts'

const VERSION = '1.2.0'
const asked = { source: 'The archive', slug: 'greeter', version: VERSION }
const ASKED = { plugin: { ...asked, kind: 'plugin' }, service: { ...asked, kind: 'service' } } as const
const YAML = file('plugin.yaml', `name: greeter\nversion: ${VERSION}\n`)
const PLUGIN = [YAML, file('src/main.py', 'print()')]
const GOOD = buildZip(PLUGIN)

const yaml = (text: string | Buffer) => buildZip([file('plugin.yaml', text), file('src/main.py')])
const withItem = (item: ZipItem) => buildZip([...PLUGIN, item])

/**
 * Mistakes of a plugin's publishers. Both the hub and the host refuse each, and the hub's message matches the pattern.
 */
const MISTAKES: Readonly<Record<string, readonly [Buffer, RegExp]>> = {
  'an empty file': [Buffer.alloc(0), /is empty \(0 bytes\)/],
  'a file that is not a ZIP': [Buffer.from('any bytes'), /cannot be read as a ZIP file/],
  'a tar': [Buffer.concat([Buffer.from('plugin.yaml'), Buffer.alloc(2000)]), /cannot be read as a ZIP file/],
  'a truncated ZIP': [GOOD.subarray(0, GOOD.length - 30), /cannot be read as a ZIP file/],
  'a ZIP without its beginning': [GOOD.subarray(30), /cannot be read as a ZIP file|is damaged/],
  'a ZIP without an entry': [buildZip([]), /contains nothing/],
  'only a directory': [buildZip([directory('greeter/')]), /contains no file/],
  'a damaged file': [buildZip([YAML, { ...file('a', 'a'), both: { crc: 1 } }]), /is damaged at "a"/],
  'a ZIP without plugin.yaml': [buildZip([file('src/main.py')]), /has no plugin\.yaml at its root/],
  'plugin.yaml two levels down': [buildZip([file('a/b/plugin.yaml', 'version: 1.2.0')]), /has no plugin\.yaml/],
  'plugin.yml': [buildZip([file('plugin.yml', 'version: 1.2.0')]), /has no plugin\.yaml/],
  'plugin.yaml as a directory': [buildZip([file('plugin.yaml/x'), file('a')]), /has no plugin\.yaml/],
  'plugin.yaml as a dangling symlink': [buildZip([symlink('plugin.yaml', 'none'), file('a')]), /has no plugin\.yaml/],
  'a plugin.yaml of a different version': [yaml('version: 1.2.1'), /is 1\.2\.1, but --version is 1\.2\.0/],
  'a different version through an alias': [yaml('a: &v 1.2.1\nversion: *v'), /is 1\.2\.1, but --version is 1\.2\.0/],
  'an empty plugin.yaml': [yaml(''), /must contain "key: value" lines/],
  'a plugin.yaml without keys': [yaml('greeter'), /must contain "key: value" lines/],
  'a plugin.yaml that is a list': [yaml('- version: 1.2.0'), /must contain "key: value" lines/],
  'a plugin.yaml with a tab': [yaml('version: 1.2.0\nenvironment:\n\trequired: []'), /is not valid YAML in line 3/],
  'a plugin.yaml with a repeated key': [yaml('version: 1.2.0\nversion: 1.2.0'), /repeats a key in line 2/],
  'a version that is a list': [
    yaml('version: [1, 2, 0]'),
    /The version in plugin\.yaml is not text for all YAML parsers: quote it/,
  ],
  'an environment that is a list': [
    yaml('environment: [A]'),
    /at environment that hosts refuse, because it must be a map with the lists "required" and "optional"/,
  ],
  'settings that are not a list': [yaml('version: 1.2.0\nenvironment: {required: A}'), /at environment\.required/],
  'a plugin.yaml of two documents': [yaml('version: 1.2.0\n---\nname: b\n'), /has a second document in line/],
  'a plugin.yaml in Latin-1': [yaml(Buffer.from('name: b\xe9\nversion: 1.2.0\n', 'latin1')), /is not UTF-8/],
  'a plugin.yaml with a lone carriage return': [yaml('version: 1.2.0\nname: a\rb: c\n'), /has a character in line 2/],
  'a version that hosts print differently': [
    yaml('version: 1.20'),
    /the number 1\.20, which loses its final 0: quote it/,
  ],
  'a plugin.yaml with a NUL': [yaml('version: 1.2.0\nname: a\0b\n'), /has a character in line 2/],
  'a plugin.yaml with a merge key': [yaml('a: &a {b: 1}\nversion: 1.2.0\n<<: *a\n'), /a merge key \(<<\) in line 3/],
  'a plugin.yaml with a list as a key': [yaml('version: 1.2.0\n? [a, b]\n: 1\n'), /has a list, a map or an alias/],
  'a plugin.yaml of 500 lists': [
    yaml(`version: 1.2.0\nx: ${'['.repeat(500)}${']'.repeat(500)}\n`),
    /more than 32 levels of nesting/,
  ],
  'a plugin.yaml with an alias without an anchor': [yaml('version: 1.2.0\nx: *a\n'), /is not valid YAML|has an alias/],
  'a plugin.yaml with an alias bomb': [
    yaml(`version: 1.2.0\na: &a [${'x,'.repeat(50)}]\nb: &b [${'*a,'.repeat(50)}]\nc: [${'*b,'.repeat(40)}]\n`),
    /has an alias \(\*\) without its anchor, or too many/,
  ],
  'a setting of two lines': [
    yaml('version: 1.2.0\nenvironment: {required: ["A\\nB"]}'),
    /at environment\.required\.0 that hosts refuse, because environment must be a map /,
  ],
  'a plugin.yaml that is too long': [yaml(`version: 1.2.0\n#${'x'.repeat(40_000)}`), /shorten it to 32768 bytes/],
  'a path that leads out': [withItem(file('../evil')), /"\.\.\/evil" has an empty part/],
  'an absolute path': [withItem(file('/etc/passwd')), /has an absolute path/],
  'a Windows path': [withItem(file('src\\a.py')), /has a backslash/],
  'a drive': [withItem(file('C:/a.py')), /has an absolute path/],
  'a repeated file': [withItem(file('src/main.py')), /is in the archive twice/],
  'a name that is repeated in another Unicode form': [
    buildZip([...PLUGIN, file('caf\u00e9'), file('cafe\u0301')]),
    /is the same name as "caf\u00e9" after Unicode normalization/,
  ],
  'a file that is also a directory': [withItem(file('src')), /is not a directory, but other entries are below it/],
  'a long name': [withItem(file('n'.repeat(256))), /a name of more than 255 bytes/],
  'a deep path': [withItem(file(`${'d/'.repeat(64)}f`)), / has a path of more than 64 levels\./],
  'a symlink that leads out': [withItem(symlink('src/l', '../../x')), /, which leads out of the archive\./],
  'an absolute symlink': [withItem(symlink('l', '/etc/hostname')), /, which is not a relative path\./],
  'a symlink in a loop': [withItem(symlink('l', 'l')), /"l", which is part of a loop\./],
  'a symlink through 41 others': [
    buildZip([...PLUGIN, ...Array.from({ length: 42 }, (_, n) => symlink(`l${n}`, n === 0 ? 'src' : `l${n - 1}`))]),
    /"l41" is a symlink to "l40", which leads through more than 40 symlinks\./,
  ],
  'a symlink with a backslash': [
    withItem(symlink('l', 'src\\a')),
    /, which contains a backslash or a control character\./,
  ],
  'a symlink to a very long path': [
    withItem(symlink('l', 'x/'.repeat(30_000))),
    /"l" is a symlink to a path of more than 4095 bytes\./,
  ],
  'a symlink to an empty path': [withItem(symlink('l', '')), /"l" is a symlink to an empty path\./],
  'a symlink of too many levels': [withItem(symlink('l', `${'a/'.repeat(2040)}a`)), /has more than 64 levels/],
  'a symlink with a target that is too long for any system': [
    withItem(symlink('l', 'n'.repeat(4096))),
    /"l" is a symlink to a path of more than 4095 bytes\./,
  ],
  'a symlink through a file': [withItem(symlink('l', 'src/main.py/../x')), /uses a file as a directory/],
  'a symlink through a missing path': [withItem(symlink('l', 'none/../x')), /goes up from a path/],
  'a symlink that is not UTF-8': [
    withItem({ ...symlink('l', ''), data: Buffer.from('b\xe9', 'latin1') }),
    /a name that is not UTF-8/,
  ],
  'a symlink with a slash': [withItem(symlink('l/', 'src')), /with a slash at the end/],
  'more directories than entries': [
    buildZip([YAML, ...Array.from({ length: 2000 }, (_, n) => file(`${n}/${'d/'.repeat(60)}f`))]),
    /^The archive makes a host create more than 100000 files and directories, so hosts refuse it/,
  ],
  'a symlink out of its only directory': [
    buildZip([file('g/plugin.yaml', 'version: 1.2.0'), file('g/a'), symlink('g/l', '../g/a')]),
    /leads out of the archive/,
  ],
  'a FIFO': [withItem({ ...file('pipe', ''), mode: 0o010644 }), /is neither a file/],
  'a name that is not UTF-8': [
    withItem({ ...file('x'), both: { rawName: Buffer.from('b\xe9', 'latin1') } }),
    /LC_ALL=C\.UTF-8/,
  ],
  'a password': [withItem({ ...file('x'), both: { flags: 1 } }), /"x" is encrypted in the archive/],
}

describe('publishing a plugin', () => {
  for (const [name, [bytes, message]] of Object.entries(MISTAKES))
    it(`refuses ${name}`, async () => {
      await assert.rejects(requireDeployable(bytes, ASKED.plugin), { status: 400, message })
    })

  for (const [name, [bytes]] of sampled(Object.entries(MISTAKES), 6))
    it(`refuses, as a deployment does, ${name}`, async t => assert.notEqual(await verdictOfHost(t, bytes), ''))

  for (const entryPoint of ['../main.py', '/src/main.py', 'src/../../main.py', '"src\\\\main.py"'])
    it(`refuses the entry point ${entryPoint}, which prevents a signature on every host`, async () => {
      const bytes = yaml(`version: 1.2.0\nexecution_mode: Trusted\nentry_point: ${entryPoint}`)
      await assert.rejects(requireDeployable(bytes, ASKED.plugin), { status: 400, message: /has an entry_point that/ })
      const { executionMode, ...plugin } = parsePluginYaml(`entry_point: ${entryPoint}\nexecution_mode: Trusted`)
      assert.equal(needsPluginSig({ ...plugin, executionMode }), true)
      assert.throws(() => isCovered('src', { ...plugin, executionMode }), { code: 'not_a_plugin' })
      await requireDeployable(yaml(`version: 1.2.0\nentry_point: ${entryPoint}`), ASKED.plugin)
    })

  for (const envFile of ['../x.env', '/etc/x.env', 'a/../../x.env'])
    it(`refuses the env_file ${envFile}, which every host refuses`, async () => {
      const text = `version: 1.2.0\nenvconfiguration: {inject: true, env_file: ${envFile}}`
      await assert.rejects(requireDeployable(yaml(text), ASKED.plugin), {
        status: 400,
        message: /has an env_file that/,
      })
      assert.throws(() => parsePluginYaml(text), { code: 'not_a_plugin' })
      await requireDeployable(yaml(text.replace(envFile, 'etc/x.env')), ASKED.plugin)
    })

  it('refuses a setting that is not a valid variable name, before a deployment fails because of it', async () => {
    const bytes = yaml('version: 1.2.0\nenvironment: {required: ["A B"]}')
    const message = /at environment\.required\.0/
    await assert.rejects(requireDeployable(bytes, ASKED.plugin), { status: 400, message })
  })

  for (const [name, bytes] of Object.entries({
    'files at the top': GOOD,
    'one directory at the top': buildZip([file('g-1.2.0/plugin.yaml', 'version: 1.2.0'), file('g-1.2.0/a')]),
    'a version with a v': yaml('version: v1.2.0'),
    'a version in quotes': yaml('version: "1.2.0"'),
    'a plugin.yaml without a version': yaml('name: greeter'),
    'unknown keys': yaml('version: 1.2.0\nicon: {a: [1]}\nenvironment: {required: [A], optional: }'),
    'a plugin.yaml that is a link': buildZip([
      symlink('plugin.yaml', 'src/p.yaml'),
      file('src/p.yaml', 'version: 1.2.0'),
    ]),
  }))
    it(`accepts ${name}, as a deployment does`, async t => {
      await requireDeployable(bytes, ASKED.plugin)
      assert.equal(await verdictOfHost(t, bytes), '')
    })

  it('refuses an archive that unpacks to more than hosts accept, and one with too many entries', async () => {
    const large = buildZip([YAML, { ...file('a', 'a'), both: { size: 2 ** 31 } }])
    const files = Array.from({ length: 100_001 }, (_, nth) => ({ ...file(`f${nth}`, ''), stored: true }))
    const many = buildZip(files, { zip64: {}, end: { count: 0xffff, countHere: 0xffff } })
    for (const [bytes, excess] of [
      [large, 'unpacks to more than 2147483648 bytes'],
      [many, 'has more than 100000 entries'],
    ] as const)
      await assert.rejects(requireDeployable(bytes, ASKED.service), {
        message: `The archive ${excess}, so hosts refuse it by default: remove some files.`,
      })
  })
})

describe('publishing a service', () => {
  for (const { name, bytes } of ACCEPTED_ZIPS)
    it(`accepts, as a host does, ${name}`, async () => {
      await requireDeployable(bytes, ASKED.service)
    })

  it('refuses most archives that a host refuses, but not every deliberate lie', async () => {
    const passed: string[] = []
    const tried = HOSTILE_ZIPS.filter(
      ({ platform, name }) => platform === undefined && !name.startsWith('archive_too_large'),
    )
    for (const { name, bytes } of tried)
      await requireDeployable(bytes(), ASKED.service).then(
        () => passed.push(name),
        error => assert.equal(error.status, 400, `${name}: ${error}`),
      )
    assert.ok(passed.length < tried.length / 2, `${passed.length} of ${tried.length}:\n${passed.join('\n')}`)
  })
})

describe('the publish command', () => {
  for (const [name, [bytes, message]] of sampled(Object.entries(MISTAKES), 5))
    it(`says in one sentence what is wrong with ${name}, and publishes nothing`, async t => {
      const folder = newFolder(t)
      writeFileSync(join(folder, 'a.zip'), bytes)
      const source = ['--archive', join(folder, 'a.zip'), '--signing-secret-env', 'HUB_TEST_SECRET']
      const what = ['--kind', 'plugin', '--slug', 'greeter', '--version', VERSION]
      const { code, stderr } = await hub('publish', ...what, ...source, '--data', join(folder, 'data'))
      assert.equal(code, 1)
      assert.match(stderr, message)
      assert.equal(stderr.trim().split('\n').length, 1)
      assert.equal(existsSync(join(folder, 'data')), false)
    })
})

/** The error code of a deployment of the archive; empty if the deployment succeeds. */
async function verdictOfHost(t: TestContext, bytes: Buffer): Promise<string> {
  const folder = temporaryDirectory(t)
  const [projectRoot, temporaryFolder] = [join(folder, 'host'), join(folder, 'temp')]
  for (const path of [projectRoot, temporaryFolder]) mkdirSync(path, { mode: 0o755 })
  const hub = await serveUntrustedHub(t, { artifact: serveArtifact(bytes) })
  const wire = createTestedWire()
  const plan = { path: 'install.yaml', text: PLUGIN_PLAN }
  const given = { hub: hub.url, projectRoot, plan, signingSecret: SIGNING_SECRET, version: VERSION }
  const tools = toolsOf({ wires: { wire, reportWire: wire }, log: collectLog() })
  const { error } = await deployArtifact(deployRequest(given), {
    ...tools,
    runner: { ...tools.runner, temporaryFolder },
  })
  return error?.code ?? ''
}
