import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { stripVTControlCharacters } from 'node:util'
import { COMPILE_CACHE } from '../compile-cache.ts'
import { whyLeftToCi } from '../extent.ts'

const ROOT = join(import.meta.dirname, '../..')
const PLUGIN = join(ROOT, 'examples/plugin')
const SERVICE = join(ROOT, 'examples/service')
const PROJECT = join(ROOT, 'examples/project')

const SECTIONS = [
  'Log of the step',
  'Job summary',
  'Outputs',
  'Files on the host',
  'The same on a real host: .github/workflows/deploy.yml',
  'What next',
]

const ONLY_IN_CI = whyLeftToCi()
const CONTAINED = /^The folder of --root, \S+, and that of your (?:plugin|service), \S+, must not contain [^\n]+\.\n$/

describe('npm run try', { concurrency: 2 }, () => {
  /** Contains a folder for the temporary files of each test. `npm run try` must leave no temporary files there. */
  let folder: string
  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'try-test-'))
  })
  after(() => rmSync(folder, { recursive: true, force: true }))

  function makeShop(): readonly [temporary: string, source: string] {
    const temporary = mkdtempSync(join(folder, 'tmp-'))
    const source = join(temporary, 'shop')
    cpSync(PROJECT, source, { recursive: true })
    return [temporary, source]
  }

  it('deploys a plugin, shows the log as a runner does, and serves the page until a signal', async () => {
    const temporary = mkdtempSync(join(folder, 'tmp-'))
    const child = start(['--from', PLUGIN, '--keep'], temporary)
    const page = await waitFor(child, /The fleet page is at (\S+)/)
    assert.match(await (await fetch(page)).text(), /greeter/)
    const [stage = ''] = readdirSync(temporary)
    assert.ok(existsSync(join(temporary, stage, 'host/plugins/greeter/plugin.sig')))
    child.process.kill('SIGTERM')
    assert.equal(await child.ended, 0, child.output())
    assert.deepEqual(readdirSync(temporary), [])
    expectSections(child.output(), 'plugin greeter 1.0.0')
    assert.match(child.output(), /^\| outcome +success$/m)
    assert.match(child.output(), /^ {10}slug: greeter$/m)
    assert.match(child.output(), /^ {10}plugin-secret-key: /m)
    assert.ok(child.output().includes(`\n  npm run try -- --from ${PLUGIN} --root DIR\n`), child.output())
    expectPlainText(child.output())
  })

  it('continues in its own folder with an update, a reused version and a rollback', async () => {
    const temporary = mkdtempSync(join(folder, 'tmp-'))
    const root = join(temporary, 'stage')
    const source = join(temporary, 'clock')
    cpSync(SERVICE, source, { recursive: true })
    const installed = (): string => readFileSync(join(root, 'host/extensions/clock/run.sh'), 'utf8')

    const first = start([source, '--root', root], temporary)
    assert.equal(await first.ended, 0, first.output())
    assert.match(first.output(), /^--- service clock 1\.0\.0 -/m)
    assert.ok(first.output().includes(`\nSigned and published ${source} on the hub in ${root}: `), first.output())
    assert.ok(first.output().includes(`\n  npm run try -- --from ${source} --root ${root} --version 1.0.1\n`))
    const original = installed()

    writeFileSync(join(source, 'run.sh'), '#!/bin/sh\nexit 0\n')
    const refused = start([source, '--root', root], temporary)
    assert.equal(await refused.ended, 1)
    assert.match(
      refused.errors(),
      /^This hub has clock 1\.0\.0 with different files, [^\n]+: raise the version \(--version 1\.0\.1\)\.\n$/,
    )

    const broken = start([source, '--root', root, '--version', '1.1.0', '--break'], temporary)
    assert.equal(await broken.ended, 1)
    assert.match(broken.output(), /^\| outcome +rolled_back$/m)
    assert.match(broken.output(), /^\| running-version +1\.0\.0$/m)
    assert.match(broken.output(), /^--break adds the provision step `broken`, which runs `false`/m)
    assert.match(broken.output(), /^Run the command without --break to install your version\.$/m)
    assert.equal(installed(), original)
    assert.deepEqual(readdirSync(temporary).toSorted(), ['clock', 'stage'])

    const unchanged = start([PLUGIN, '--root', root], temporary)
    assert.equal(await unchanged.ended, 0, unchanged.output())
    assert.match(unchanged.output(), /^\| └─ greeter\/\n\| {4}├─ README\.md/m)
    assert.match(unchanged.output(), /^\| └─ clock\/ …$/m)
    const skipped = start([PLUGIN, '--root', root, '--break'], temporary)
    assert.equal(await skipped.ended, 0, skipped.output())
    assert.match(
      skipped.output(),
      /^Nothing had to change, so the broken step was skipped\. To see a rollback, change a file, raise the version \(in/m,
    )

    const secrets: Record<string, string> = JSON.parse(readFileSync(join(root, 'secrets.json'), 'utf8'))
    const shown = [first, refused, broken, unchanged, skipped].map(({ output, errors }) => output() + errors()).join('')
    assert.deepEqual(
      Object.values(secrets).filter(secret => shown.includes(secret)),
      [],
    )
  })

  it('deploys a project, and rolls back all of it with --break', async () => {
    const [temporary, source] = makeShop()
    const root = join(temporary, 'stage')

    const first = start([source, '--root', root], temporary)
    assert.equal(await first.ended, 0, first.output())
    expectSections(first.output(), 'project prj_ShopExample01 1.0.0')
    expectPlainText(first.output())
    assert.ok(first.output().includes(`\nSealed and published ${source} on the hub in ${root}: `), first.output())
    assert.ok(first.output().includes(`\n  npm run try -- --from ${source} --root ${root} --version 1.0.1\n`))
    assert.match(first.output(), /^ {6}- uses: OWNER\/hub-deploy\/project@v1 /m)
    for (const part of ['plugins/cart', 'plugins/till']) assert.ok(existsSync(join(root, 'host', part, 'plugin.sig')))

    writeFileSync(join(source, 'extensions/mailer/run.sh'), '#!/bin/sh\nexit 0\n')
    const broken = start([source, '--root', root, '--version', '1.1.0', '--break'], temporary)
    assert.equal(await broken.ended, 1, broken.errors())
    assert.match(broken.output(), /^\| outcome +rolled_back$/m)
    assert.match(broken.output(), /^\| failed-step +broken$/m)
    assert.match(
      broken.output(),
      /^The broken step is sealed into 1\.1\.0\. Run [^\n]+ --version 1\.1\.1 to install your project\.$/m,
    )
    const installed = readFileSync(join(root, 'host/extensions/mailer/run.sh'), 'utf8')
    assert.equal(installed, readFileSync(join(PROJECT, 'extensions/mailer/run.sh'), 'utf8'))

    const shown = [first, broken].map(({ output, errors }) => output() + errors()).join('')
    assert.doesNotMatch(shown, /(?:devkey|deploy)_[\w-]{43}|PRIVATE KEY/)
    assert.deepEqual(readdirSync(temporary).toSorted(), ['shop', 'stage'])
  })

  it('updates a project that takes parts from the same hub', { skip: ONLY_IN_CI }, async () => {
    const [temporary, source] = makeShop()
    const root = join(temporary, 'stage')
    for (const first of [source, PLUGIN]) {
      const child = start([first, '--root', root], temporary)
      assert.equal(await child.ended, 0, child.output())
    }
    const plan = join(source, 'deployment/install.yaml')
    const step = '  - {id: greet, action: install_plugin, plugin: greet, source: {marketplace_slug: greeter}}\n'
    writeFileSync(plan, readFileSync(plan, 'utf8') + step)
    const update = start([source, '--root', root, '--version', '1.1.0'], temporary)
    assert.equal(await update.ended, 0, update.output())
    assert.match(update.output(), /^\| previous-version +1\.0\.0$/m)
    assert.ok(existsSync(join(root, 'host/plugins/greet/src/main.py')))
  })

  it('deploys a project whose plugins are in another folder, and rolls it back', { skip: ONLY_IN_CI }, async () => {
    const [temporary, source] = makeShop()
    const root = join(temporary, 'stage')
    renameSync(join(source, 'plugins'), join(source, 'modules'))
    const options = [source, '--root', root, '--plugins-dirname', 'modules']
    const first = start(options, temporary)
    assert.equal(await first.ended, 0, first.errors())
    assert.match(first.output(), /^\| modules\/$/m)
    assert.match(first.output(), / --plugins-dirname modules --root \S+ --version 1\.0\.1$/m)
    assert.ok(existsSync(join(root, 'host/modules/till/plugin.sig')))
    writeFileSync(join(source, 'modules/till/new'), '')
    const broken = start([...options, '--version', '1.1.0', '--break'], temporary)
    assert.equal(await broken.ended, 1, broken.errors())
    assert.match(broken.output(), /^\| outcome +rolled_back$/m)
    assert.ok(!existsSync(join(root, 'host/modules/till/new')))
  })

  it('prints a note if --slug differs from the slug of the name in plugin.yaml', { skip: ONLY_IN_CI }, async () => {
    const child = start([PLUGIN, '--slug', 'gretter'], mkdtempSync(join(folder, 'tmp-')))
    assert.equal(await child.ended, 0, child.errors())
    assert.match(child.output(), /^Note: --slug is gretter, but the name in plugin\.yaml gives the slug greeter\.$/m)
  })

  it("follows the operator's plan, which may roll back, and masks a setting", async () => {
    const temporary = mkdtempSync(join(folder, 'tmp-'))
    const source = join(temporary, 'greeter')
    cpSync(PLUGIN, source, { recursive: true })
    writeFileSync(
      join(source, 'plugin.yaml'),
      'name: greeter\nversion: "2.0.0"\nenvironment: {required: [GREETER_TOKEN]}\n',
    )
    writeFileSync(join(source, '.env.template'), 'GREETER_TOKEN=\n')
    const args = [
      source,
      '--plan',
      join(ROOT, 'examples/install-with-settings.yaml'),
      '--root',
      join(temporary, 'stage'),
    ]

    const without = start(args, temporary)
    assert.equal(await without.ended, 1)
    assert.match(without.output(), /^\| outcome +rolled_back$/m)
    assert.match(
      without.output(),
      /^In messages, deploy\/install\.yaml is your file \S+\/examples\/install-with-settings\.yaml\.$/m,
    )
    assert.match(without.output(), /^\| failed-step +settings$/m)
    assert.match(without.output(), /^\| \(nothing is installed\)$/m)

    const token = 'correct horse battery staple'
    const given = start([...args, '--verbose', '--setting', `GREETER_TOKEN=${token}`], temporary)
    assert.equal(await given.ended, 0, given.output())
    assert.match(readFileSync(join(temporary, 'stage/host/plugins/greeter.env'), 'utf8'), /correct horse/)
    assert.ok(!given.output().includes(token))
    assert.match(given.output(), /settings: \|\n.*GREETER_TOKEN=\$\{\{ secrets\.GREETER_TOKEN \}\}$/m)
  })

  it('cancels the deployment when it is stopped, and leaves no files', async () => {
    const temporary = mkdtempSync(join(folder, 'tmp-'))
    const hostConfig = join(folder, 'never-healthy.yaml')
    writeFileSync(hostConfig, 'version: 1\nplugins:\n  greeter: {healthcheck: {command: ["false"]}}\n')
    const child = start([PLUGIN, '--host-config', hostConfig], temporary)
    await waitFor(child, /^\| (healthchecking)/m)
    child.process.kill('SIGTERM')
    assert.equal(await child.ended, 1)
    assert.match(child.output(), /^\| outcome +rolled_back$/m)
    assert.match(child.output(), /^\| error-code +cancelled$/m)
    assert.deepEqual(readdirSync(temporary), [])
  })

  it('fails when a signal comes before the deployment, and says so', async () => {
    const temporary = mkdtempSync(join(folder, 'tmp-'))
    const source = join(folder, 'large')
    cpSync(SERVICE, source, { recursive: true })
    // A file of this size takes half a second to pack.
    writeFileSync(join(source, 'data'), randomBytes(20_000_000))
    const child = start([source], temporary)
    while (readdirSync(temporary).length === 0) await setTimeout(5)
    child.process.kill('SIGTERM')
    assert.equal(await child.ended, 1, child.output())
    assert.match(
      child.output(),
      /^A signal came before the deployment, so nothing was deployed\. Now .* is removed\.$/m,
    )
    assert.deepEqual(readdirSync(temporary), [])
  })

  it('refuses a hostile folder, a missing plan and a foreign --root in one sentence, and leaves no files', async () => {
    const temporary = mkdtempSync(join(folder, 'tmp-'))
    const source = join(folder, 'hostile')
    cpSync(PLUGIN, source, { recursive: true })
    symlinkSync('/etc/passwd', join(source, 'src/users'))
    const link = join(folder, 'link')
    symlinkSync(source, link)
    const rows = [
      [[source], 1, /^The symlink \S+users leads to \/etc\/passwd: it must [^\n]+\.\n$/],
      [[PLUGIN, '--plan', 'none.yaml'], 2, /^The file \S+none\.yaml of --plan does not exist: correct the path\.\n$/],
      [[PLUGIN, '--plan', source], 2, /^The file \S+hostile of --plan is a folder: name a file\.\n$/],
      [
        [PLUGIN, '--root', join(source, 'plugin.yaml')],
        2,
        /^\S+ cannot be the folder of --root \(EEXIST\): name [^\n]+\.\n$/,
      ],
      [[PLUGIN, '--root', '/proc/try'], 2, /^\/proc\/try cannot be the folder of --root \(\w+\): name [^\n]+\.\n$/],
      [[PLUGIN, '--root', source], 2, /^The folder \S+hostile of --root contains other files: [^\n]+\.\n$/],
      [[source, '--root', join(source, 'out')], 2, CONTAINED],
      [[source, '--root', join(link, 'out/new')], 2, CONTAINED],
      [[join(link, 'src'), '--kind', 'service', '--root', source], 2, CONTAINED],
      [
        [PROJECT, '--plan', 'install.yaml'],
        2,
        /^The option --plan does not apply to a project, [^\n]+: remove the option\.\n$/,
      ],
      [
        [join(PROJECT, 'extensions')],
        1,
        /^\S+ has no plugin\.yaml: add one [^\n]+ or deployment\/install\.yaml if [^\n]+\.\n$/,
      ],
      [[PLUGIN, '--from', SERVICE], 2, /^Name one folder, not both [^\n]+\.\n$/],
    ] as const
    for (const [args, code, message] of rows) {
      const child = start(args, temporary)
      assert.equal(await child.ended, code, child.output())
      assert.match(child.errors(), message)
      assert.deepEqual(readdirSync(temporary), [])
    }
  })
})

interface Started {
  readonly process: ChildProcess
  readonly ended: Promise<number | null>
  output(): string
  errors(): string
}

function start(args: readonly string[], temporary: string): Started {
  const env = {
    PATH: process.env['PATH'],
    HOME: process.env['HOME'],
    TMPDIR: temporary,
    NODE_COMPILE_CACHE: COMPILE_CACHE,
  }
  const child = spawn(process.execPath, [join(ROOT, 'scripts/try.ts'), ...args], {
    cwd: temporary,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const texts = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', text => {
      texts[name] += text
    })
  }
  return {
    process: child,
    ended: once(child, 'close').then(([code]) => code),
    output: () => texts.stdout,
    errors: () => texts.stderr,
  }
}

async function waitFor({ process: child, ended, output }: Started, pattern: RegExp): Promise<string> {
  for (;;) {
    const found = pattern.exec(output())?.[1]
    if (found !== undefined) return found
    const code = await Promise.race([ended, once(child.stdout ?? child, 'data').then(() => 'more' as const)])
    assert.equal(code, 'more', output())
  }
}

/** Expects the sections of a deployment that succeeded; the first one is about the sources. */
function expectSections(output: string, first: string): void {
  const expected = [first, ...SECTIONS]
  const found = [...output.matchAll(/^--- (.*?) -+$/gm)].map(([, title]) => title ?? '')
  assert.deepEqual(
    found.filter(title => expected.includes(title)),
    expected,
  )
}

/** Expects nothing that a runner would obey as a command, and no colors or symbols: the output is not a terminal. */
function expectPlainText(output: string): void {
  assert.equal(stripVTControlCharacters(output), output)
  assert.deepEqual(
    output.split('\n').filter(line => /^\s*::|##\[|[✔✘▸▾]/.test(line)),
    [],
  )
}
