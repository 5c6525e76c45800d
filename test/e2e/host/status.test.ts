import assert from 'node:assert/strict'
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { after, afterEach, before, beforeEach, describe, it } from 'node:test'
import { type ActionResult, type ActionRun, runAction } from '../../../local/runner.ts'
import { countInWords } from '../../../src/core/text.ts'
import { waitUntil } from '../../clocks.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { stampsOf } from '../../folders.ts'
import { commandsIn, listOwn } from '../harness/evidence.ts'
import { bindMount, run, whyNoMounting } from '../harness/mounts.ts'
import { openInstalled, openStage, PLUGIN_PLAN, pluginFiles, type Stage, writeFiles } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const NEEDS_ROOT = process.getuid?.() !== 0 && 'needs root'
const GREETER = 'plugins/greeter'
/** All outputs but `error-code`. */
const OUTPUTS = ['installed', 'drift', 'pending-recovery', 'snapshots', 'drift-details']

let stage: Stage

/** Runs the status action, which must not change anything below the root. */
async function status(inputs: Record<string, string> = {}, more: Partial<ActionRun> = {}): Promise<ActionResult> {
  const root = inputs['project-root'] ?? stage.root
  const before = existsSync(root) ? stampsOf(root) : undefined
  const { workspace } = stage
  const result = await runAction({ workspace, action: 'status', inputs: { 'project-root': root, ...inputs }, ...more })
  assert.deepEqual(existsSync(root) ? stampsOf(root) : undefined, before)
  return result
}

function list(result: ActionResult, output: string): Record<string, unknown>[] {
  return JSON.parse(result.outputs[output] ?? '')
}

/** Asserts that the step failed with this code, one annotation and no other outputs. Returns the annotation. */
function refusalOf(result: ActionResult, code: string): string {
  assert.deepEqual([result.exitCode, result.outputs['error-code']], [1, code], result.log)
  for (const name of OUTPUTS) assert.equal(result.outputs[name], '', name)
  const errors = commandsIn(result.log, 'error')
  assert.equal(errors.length, 1, result.log)
  assert.match(result.summary, /^### ❌ It is not known what is installed on .+\n/)
  return errors[0] as string
}

async function deployed(version: string, files: Record<string, string> = {}): Promise<ActionResult> {
  await stage.publish(version, pluginFiles(version, { 'src/old.py': 'old', ...files }))
  const result = await stage.deploy()
  assert.equal(result.exitCode, 0, result.log)
  return result
}

function at(path: string): string {
  return join(stage.root, path)
}

describe('the status of an unchanged host', () => {
  let deployment: ActionResult
  before(async () => {
    stage = await openStage()
    await deployed('1.0.0')
    deployment = await deployed('1.1.0')
  })
  after(() => stage.close())

  it('lists the installed and the retained versions, and finds no drift', async () => {
    const result = await status({ 'fail-on-drift': 'true' })
    assert.equal(result.exitCode, 0, result.log)
    const [installed, snapshot] = [list(result, 'installed'), list(result, 'snapshots')]
    const [when, then] = [installed[0]?.['when'], snapshot[0]?.['when']]
    for (const time of [when, then]) assert.match(String(time), /^\d{4}-\d\d-\d\dT[\d:.]+Z$/)
    const part = { shelf: 'plugins', id: 'greeter' }
    const run = 'https://code-host.example/example/operations/actions/runs/1001'
    const sha256 = deployment.outputs['artifact-sha256']
    assert.deepEqual(installed, [{ ...part, version: '1.1.0', sha256, when, run }])
    const path = at('.hub-deploy/snapshots/plugins/greeter/1-1.0.0')
    assert.deepEqual(snapshot, [{ ...part, version: '1.0.0', when: then, modified: false, path }])
    const { drift, 'pending-recovery': pending, 'drift-details': details, 'error-code': code } = result.outputs
    assert.deepEqual([drift, pending, details, code], ['false', 'false', '[]', ''])
    assert.match(result.summary, /^### ✅ 1 part is as installed on /)
    assert.match(result.summary, /\| <code>plugins\/greeter<\/code> \| 1\.1\.0 \| .+ UTC \| as installed \| 1\.0\.0 \|/)
    assert.deepEqual([...commandsIn(result.log, 'warning'), ...commandsIn(result.log, 'error')], [])
  })

  it('is the same on a file system that is mounted read-only', { skip: whyNoMounting() }, async t => {
    const path = join(stage.folder, 'read-only')
    bindMount(t, stage.root, path)
    run('mount', '-o', 'remount,bind,ro', path)
    const result = await status({ 'project-root': path })
    assert.deepEqual([result.exitCode, result.outputs['drift']], [0, 'false'], result.log)
    assert.equal(list(result, 'installed')[0]?.['version'], '1.1.0')
  })

  it('names every missing and malformed input at once', async () => {
    const result = await status({ 'project-root': '', 'fail-on-drift': 'perhaps', 'keep-paths': '../x' })
    const message = refusalOf(result, 'missing_input')
    for (const name of ['project-root', 'fail-on-drift', 'keep-paths']) assert.ok(message.includes(name), message)
  })
})

describe('the status of a host whose files were changed', () => {
  beforeEach(async () => {
    const files = { 'src/old.py': 'old', 'a.txt': 'a', 'b.txt': 'b', 'c.txt': 'c', 'd.txt': 'd' }
    stage = await openInstalled(pluginFiles('1.0.0', files))
  })
  afterEach(() => stage.close())

  function change(): void {
    writeFiles(stage.root, { [`${GREETER}/src/main.py`]: 'by hand', [`${GREETER}/src/extra.py`]: 'more' })
    rmSync(at(`${GREETER}/src/old.py`))
    chmodSync(at(`${GREETER}/a.txt`), 0o600)
    rmSync(at(`${GREETER}/b.txt`))
    symlinkSync('a.txt', at(`${GREETER}/b.txt`))
    rmSync(at(`${GREETER}/c.txt`))
    mkdirSync(at(`${GREETER}/c.txt`))
    utimesSync(at(`${GREETER}/d.txt`), 0, 0)
    chmodSync(at(`${GREETER}/src`), 0o777)
    chmodSync(at(GREETER), 0o775)
    writeFiles(stage.root, { [`${GREETER}/data/rows`]: '1', [`${GREETER}/.env`]: 'A=1' })
    writeFiles(stage.root, { [`${GREETER}/src/__pycache__/main.cpython-313.pyc`]: 'x' })
  }

  it('lists files that were added, removed, changed, given another mode or replaced by another type of file', async () => {
    change()
    const result = await status()
    assert.deepEqual([result.exitCode, result.outputs['drift'], result.outputs['error-code']], [0, 'true', ''])
    assert.deepEqual(list(result, 'drift-details'), [
      {
        shelf: 'plugins',
        id: 'greeter',
        version: '1.0.0',
        added: ['src/extra.py'],
        removed: ['src/old.py'],
        changed: ['b.txt', 'c.txt', 'src/main.py'],
        mode: ['.', 'a.txt', 'src'],
        replaced: ['b.txt', 'c.txt'],
      },
    ])
    const [warning, ...others] = commandsIn(result.log, 'warning')
    const named = `${GREETER} (a directory that another account can write)`
    for (const text of [
      named,
      'a.txt (mode or owner changed)',
      'b.txt (replaced by another kind of entry)',
      'src/main.py (changed)',
    ])
      assert.ok(warning?.includes(text), warning)
    assert.deepEqual(others, [])
    assert.match(result.summary, /^### ⚠️ 1 of 1 part differs from what was installed on /)
    assert.match(result.summary, /\| ⚠️ 8 differ \|/)
  })

  it('lists files and directories that were given to another user', { skip: NEEDS_ROOT }, async () => {
    writeFiles(stage.root, { [`${GREETER}/src/__pycache__/main.cpython-313.pyc`]: 'x' })
    for (const path of ['a.txt', 'src', 'src/__pycache__', 'src/__pycache__/main.cpython-313.pyc'])
      chownSync(at(`${GREETER}/${path}`), 4242, 4242)
    const result = await status()
    const [details] = list(result, 'drift-details')
    assert.deepEqual([result.outputs['drift'], details?.['changed'], details?.['mode']], ['true', [], ['a.txt', 'src']])
    const redeployed = await stage.deploy()
    assert.equal(redeployed.outputs['changed'], 'true', redeployed.log)
    assert.equal((await status()).outputs['drift'], 'false')
  })

  it('fails with drift_found, the same outputs and one annotation if the workflow asks for that', async () => {
    change()
    const result = await status({ 'fail-on-drift': 'true' })
    assert.deepEqual([result.exitCode, result.outputs['error-code']], [1, 'drift_found'])
    assert.equal(result.outputs['drift'], 'true')
    assert.equal(list(result, 'drift-details').length, 1)
    assert.equal(commandsIn(result.log, 'error').length, 1)
    assert.equal(commandsIn(result.log, 'warning').length, 0)
    assert.match(result.summary, /drift&#95;found/)
  })

  it('does not compare the keep-paths of the deployment, nor those that are added here', {
    skip: ONLY_IN_CI,
  }, async () => {
    writeFiles(stage.root, { [`${GREETER}/cache/x`]: '', [`${GREETER}/log/y`]: '' })
    assert.equal((await status({ 'keep-paths': 'cache' })).outputs['drift'], 'true')
    assert.equal((await status({ 'keep-paths': 'cache, log' })).outputs['drift'], 'false')
    await stage.publish('1.1.0', pluginFiles('1.1.0'))
    assert.equal((await stage.deploy({ 'keep-paths': 'cache\nlog' })).exitCode, 0)
    assert.equal((await status()).outputs['drift'], 'false')
  })

  const replacements: Record<string, () => void> = {
    symlink: () => symlinkSync('../elsewhere', at(GREETER)),
    file: () => writeFileSync(at(GREETER), ''),
    nothing: () => {},
  }
  for (const [instead, replace] of sampled(Object.entries(replacements), 2))
    it(`says that ${instead === 'nothing' ? 'the directory is missing' : `a ${instead} is in place of the directory`}, and looks no further`, async () => {
      renameSync(at(GREETER), at('elsewhere'))
      replace()
      const result = await status({ 'fail-on-drift': 'true' })
      assert.equal(result.outputs['error-code'], 'drift_found')
      const [{ instead: found, added, removed } = {}] = list(result, 'drift-details')
      assert.deepEqual([found, added, removed], [instead, [], []])
    })

  for (const damage of sampled(['missing', 'damaged'], 1))
    it(`counts a part whose record is ${damage} as drifted, and says why the part cannot be compared`, async () => {
      for (const name of listOwn(stage, 'trees')) {
        const path = at(`.hub-deploy/trees/${name}`)
        if (damage === 'missing') rmSync(path)
        else writeFileSync(path, 'x')
      }
      const result = await status({ 'fail-on-drift': 'true' })
      assert.deepEqual([result.outputs['drift'], result.outputs['error-code']], ['true', 'drift_found'])
      const [{ compared, reason } = {}] = list(result, 'drift-details')
      assert.equal(compared, false)
      assert.match(String(reason), damage === 'missing' ? /is missing/ : /not a record/)
      assert.ok(result.summary.includes('could not be compared'), result.summary)
    })

  it('limits each output of a part with many differing files, and counts those that are left out', {
    skip: ONLY_IN_CI,
  }, async () => {
    const names = Array.from({ length: 3000 }, (_, index) => `${GREETER}/x/${'y'.repeat(200)}${index}`)
    writeFiles(stage.root, Object.fromEntries(names.map(name => [name, ''])))
    const result = await status()
    for (const name of OUTPUTS) assert.ok((result.outputs[name] ?? '').length <= 100_000, name)
    const [{ added = [], omitted } = {}] = list(result, 'drift-details') as { added: string[]; omitted: number }[]
    assert.equal(added.length + (omitted ?? 0), 3000)
    assert.ok(added.length > 100)
    const cut = `is truncated: it has no room for ${countInWords(omitted ?? 0, 'more path')}.`
    for (const text of [result.log, result.summary]) assert.ok(text.includes(cut), text)
    assert.ok(result.summary.length < 20_000)
    assert.match(commandsIn(result.log, 'warning')[0] ?? '', / and 2980 more\./)
  })

  it('cannot be made to run commands or to show markup by the names of files', { skip: ONLY_IN_CI }, async () => {
    writeFiles(stage.root, { [`${GREETER}/::error::|<img>\n##[error]x`]: '' })
    const result = await status()
    assert.deepEqual(commandsIn(result.log, 'error'), [])
    assert.doesNotMatch(result.log, /^##\[error\]/m)
    assert.doesNotMatch(result.summary, /<img>/)
    assert.deepEqual(list(result, 'drift-details')[0]?.['added'], ['::error::|<img>\n##[error]x'])
  })
})

describe('the status of a host with a deployment', () => {
  beforeEach(async () => {
    stage = await openInstalled(pluginFiles('1.0.0', { 'src/old.py': 'old' }))
    await stage.publish('2.0.0', pluginFiles('2.0.0'))
  })
  afterEach(() => stage.close())

  /** Deploys 2.0.0 with a host command that runs this script once the new files are in place. */
  function deployWhile(script: string): Promise<ActionResult> {
    const plan = `${PLUGIN_PLAN}  - {id: work, action: provision, plugin: greeter, depends_on: [files]}\n`
    const config = { version: 1, provision: { greeter: { command: ['/bin/sh', '-c', script] } } }
    writeFileSync(join(stage.workspace.path, 'host.yaml'), JSON.stringify(config))
    stage.writePlan(plan)
    return stage.deploy({ 'host-config': 'host.yaml' })
  }

  it('ends at once while the deployment is in progress, names its run, and compares nothing', async () => {
    const [begun, go] = [join(stage.folder, 'begun'), join(stage.folder, 'go')]
    const deployment = deployWhile(`touch ${begun}; while ! [ -e ${go} ]; do sleep 0.05; done`)
    await waitUntil('the new files are in place', () => existsSync(begun))
    const [shown, gated] = [await status(), await status({ 'fail-on-drift': 'true' })]
    writeFileSync(go, '')
    assert.equal((await deployment).exitCode, 0)
    assert.deepEqual([shown.exitCode, shown.outputs['error-code']], [0, ''], shown.log)
    assert.deepEqual([gated.exitCode, gated.outputs['error-code']], [1, 'locked'], gated.log)
    for (const { outputs, summary } of [shown, gated]) {
      assert.deepEqual([outputs['drift'], outputs['pending-recovery']], ['', 'false'])
      assert.match(summary, /^### ⏳ A deployment is in progress on /)
      assert.match(summary, /actions\/runs\/1001/)
    }
    assert.equal((await status()).outputs['drift'], 'false')
  })

  it('says that a killed deployment is waiting for its recovery, and compares only the other parts', {
    skip: ONLY_IN_CI,
  }, async () => {
    assert.equal((await deployWhile('kill -9 $PPID; sleep 1')).signal, 'SIGKILL')
    const [shown, gated] = [await status(), await status({ 'fail-on-drift': 'true' })]
    assert.deepEqual([shown.exitCode, shown.outputs['pending-recovery'], shown.outputs['drift']], [0, 'true', ''])
    assert.match(commandsIn(shown.log, 'warning')[0] ?? '', /greeter 2\.0\.0 was interrupted/)
    assert.match(shown.summary, /^### ⚠️ An interrupted deployment is waiting for its recovery on /)
    assert.deepEqual([gated.exitCode, gated.outputs['error-code']], [1, 'drift_found'])
    stage.writePlan(PLUGIN_PLAN)
    assert.equal((await stage.deploy()).exitCode, 0)
    const { outputs } = await status()
    assert.deepEqual([outputs['pending-recovery'], outputs['drift']], ['false', 'false'])
  })

  it('refuses a damaged journal, and says what to do', async () => {
    await deployWhile('kill -9 $PPID; sleep 1')
    const journal = at('.hub-deploy/journal.jsonl')
    writeFileSync(journal, readFileSync(journal, 'utf8').replace('greeter', 'sneaker'))
    assert.match(refusalOf(await status(), 'inconsistent'), /journal\.jsonl of an interrupted deployment is damaged/)
  })
})

describe('the status of a host that is empty or cannot be examined', () => {
  beforeEach(async () => {
    stage = await openStage()
  })
  afterEach(() => stage.close())

  it('is an empty list, with a warning, if nothing was ever deployed', async () => {
    const result = await status({ 'fail-on-drift': 'true' })
    assert.equal(result.exitCode, 0, result.log)
    assert.deepEqual([result.outputs['installed'], result.outputs['drift']], ['[]', 'false'])
    assert.match(commandsIn(result.log, 'warning')[0] ?? '', /no \.hub-deploy/)
    assert.match(result.summary, /^### ✅ Nothing is installed on /)
  })

  it('fails if the root does not exist, because its disk may not be mounted', async () => {
    assert.match(refusalOf(await status({ 'project-root': at('missing') }), 'invalid_input'), /not a directory/)
    writeFileSync(at('file'), '')
    refusalOf(
      await runAction({ workspace: stage.workspace, action: 'status', inputs: { 'project-root': at('file') } }),
      'invalid_input',
    )
  })

  it('fails if another user could have written the records, unless that is accepted', async () => {
    await deployed('1.0.0')
    chmodSync(stage.root, 0o777)
    assert.match(refusalOf(await status(), 'unsafe_host'), /every user/)
    const accepted = await status({ 'allow-shared-root': 'true' })
    assert.deepEqual([accepted.exitCode, accepted.outputs['drift']], [0, 'false'], accepted.log)
    chmodSync(at('.hub-deploy'), 0o755)
    refusalOf(await status({ 'allow-shared-root': 'true' }), 'unsafe_host')
  })

  it('fails if installed.json is damaged', async () => {
    await deployed('1.0.0')
    writeFileSync(at('.hub-deploy/installed.json'), '{"schema":1,"installed":[{}]}')
    assert.match(refusalOf(await status(), 'inconsistent'), /installed\.json is not a record/)
  })

  it('fails if installed.json is a symlink', { skip: ONLY_IN_CI }, async () => {
    await deployed('1.0.0')
    const path = at('.hub-deploy/installed.json')
    renameSync(path, at('elsewhere.json'))
    symlinkSync('../elsewhere.json', path)
    refusalOf(await status(), 'unsafe_host')
  })
})
