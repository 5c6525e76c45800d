import assert from 'node:assert/strict'
import { execFile, execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import type { CommandGroup } from '../../hub/commands/command.ts'
import { HUB, runCommandLine } from '../../hub/commands/hub.ts'
import { COMPILE_CACHE } from '../compile-cache.ts'

const ROOT = join(import.meta.dirname, '../..')
/** The scripts of package.json that pass their options to a tool, which explains its options itself. */
const TOOLS = ['lint', 'test', 'types']
const UNKNOWN_OPTION = /^There is no option --no-such-option: this command has [^\n]+\.\n$/
const WIDTH = 120
/** The variables in which npm passes its settings to a program, one for each setting. */
const NPM_SETTINGS = Object.fromEntries(
  Object.keys(JSON.parse(execFileSync('npm', ['config', 'list', '--long', '--json'], { encoding: 'utf8' }))).map(
    name => [`npm_config_${name.replaceAll('-', '_')}`, 'set'],
  ),
)

const { scripts }: { scripts: Record<string, string> } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))

describe('each program that npm runs', { concurrency: 2 }, () => {
  const programs = Object.entries(scripts).filter(([name]) => !TOOLS.includes(name))
  assert.ok(programs.length >= 6)
  for (const [name, command] of programs) {
    const path = /^node (\S+\.ts)$/.exec(command)?.[1] ?? assert.fail(`${name} runs ${command}, not "node FILE.ts"`)

    it(`${name} --help prints its usage and no errors`, async () => {
      const { code, stdout, stderr } = await run(path, ['--help'])
      assert.deepEqual([code, stderr], [0, ''])
      expectUsage(stdout, `npm run ${name}`)
    })

    it(`${name} refuses an unknown option in one sentence, whatever the settings of npm`, async () => {
      const npm = { ...NPM_SETTINGS, npm_lifecycle_event: name }
      const { code, stdout, stderr } = await run(path, ['--no-such-option'], npm)
      assert.deepEqual([code, stdout], [2, ''], stderr)
      assert.match(stderr, UNKNOWN_OPTION)
    })
  }
})

describe('each command of the hub', () => {
  const commands = commandsOf(HUB)
  assert.ok(commands.length >= 20)
  for (const command of commands) {
    const typed = command.join(' ')

    it(`${typed} prints its usage with --help and with -h`, async t => {
      const { mock } = t.mock.method(console, 'log', () => {})
      for (const option of ['--help', '-h']) {
        assert.equal(await runCommandLine([...command, option]), 0)
        expectUsage(`${mock.calls.pop()?.arguments[0]}`, `npm run hub -- ${typed}`)
      }
    })

    it(`${typed} refuses an unknown option in one sentence, whatever the settings of npm`, async t => {
      setVariables(t, { ...NPM_SETTINGS, npm_lifecycle_event: 'hub' })
      const { mock } = t.mock.method(console, 'error', () => {})
      assert.equal(await runCommandLine([...command, '--no-such-option']), 2)
      assert.match(`${mock.calls[0]?.arguments[0]}\n`, UNKNOWN_OPTION)
    })
  }
})

describe('an option before "--", which npm takes as its own,', { concurrency: 2 }, () => {
  for (const [script, path, args] of [
    ['try', 'scripts/try.ts', ['examples/plugin']],
    ['try', 'scripts/try.ts', []],
    ['hub', 'hub/cli.ts', ['publish', 'examples/plugin']],
  ] as const)
    it(`is named in one sentence by npm run ${[script, ...args].join(' ')}`, async () => {
      const npm = { npm_lifecycle_event: script, npm_config_from: 'true' }
      const { code, stdout, stderr } = await run(path, args, npm)
      assert.deepEqual([code, stdout], [2, ''], stderr)
      assert.equal(
        stderr,
        `npm has taken the option --from for itself: type "--" before your options, as in "npm run ${script} -- --from".\n`,
      )
    })

  it('is named too if it leaves its value in the place of a command', async () => {
    const npm = { npm_lifecycle_event: 'hub', npm_config_port: 'true' }
    const { code, stdout, stderr } = await run('hub/cli.ts', ['8787'], npm)
    assert.deepEqual([code, stdout], [2, ''], stderr)
    assert.match(stderr, /^npm has taken the option --port for itself: type "--" before your options, /)
  })

  it('is ignored if it is a setting of npm itself, or if npm did not start the program', async () => {
    for (const npm of [{ npm_lifecycle_event: 'hub', npm_config_git: '/usr/bin/git' }, { npm_config_from: 'true' }]) {
      const { stderr } = await run('hub/cli.ts', ['publish', '--data', '/nowhere'], npm)
      assert.match(stderr, /^Name the signing secret with exactly one of /)
    }
  })
})

/** Sets variables of this process until the test ends. */
function setVariables(t: TestContext, variables: Readonly<Record<string, string>>): void {
  const before = { ...process.env }
  Object.assign(process.env, variables)
  t.after(() => {
    for (const name of Object.keys(variables)) {
      if (before[name] === undefined) delete process.env[name]
      else process.env[name] = before[name]
    }
  })
}

function commandsOf({ commands }: CommandGroup): string[][] {
  return Object.entries(commands).flatMap(([name, command]) =>
    'commands' in command ? commandsOf(command).map(rest => [name, ...rest]) : [[name]],
  )
}

function expectUsage(text: string, typed: string): void {
  const [synopsis = '', ...others] = text.replace('-- [serve]', '-- serve').split('\n')
  assert.ok(synopsis.startsWith(`Usage: ${typed}`), synopsis)
  assert.deepEqual(
    [synopsis, ...others].filter(line => line.length > WIDTH),
    [],
  )
}

interface Ended {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

function run(path: string, args: readonly string[], npm: Readonly<Record<string, string>> = {}): Promise<Ended> {
  const env = { PATH: process.env['PATH'], HOME: process.env['HOME'], NODE_COMPILE_CACHE: COMPILE_CACHE, ...npm }
  return new Promise(resolve => {
    execFile(process.execPath, [join(ROOT, path), ...args], { env }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr }),
    )
  })
}
