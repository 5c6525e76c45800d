import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { hash } from 'node:crypto'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { Script } from 'node:vm'
import type { ActionResult } from '../../../local/runner.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { assertSucceeds } from '../harness/prepared-host.ts'
import { openStage, pluginFiles, preparedOnce, type Stage } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const BUNDLE = join(import.meta.dirname, '../../../dist/index.js')
const PLANTED = 'planted code has run'

let stage: Stage
beforeEach(async () => {
  stage = await openStage()
  await stage.publish('1.0.0', pluginFiles('1.0.0'))
})
afterEach(() => stage.close())

const cache = (): string => join(stage.folder, 'cache')
const own = (): string => join(cache(), 'hub-deploy')
const compiled = (): string => join(own(), 'compiled')

/** Deploys with a cache folder that belongs to this stage. */
async function deploy(inputs: Record<string, string> = {}, env: Record<string, string> = {}): Promise<ActionResult> {
  return await stage.deploy(inputs, { env: { XDG_CACHE_HOME: cache(), ...env } })
}

/** Publishes another version and deploys it. */
async function update(version: string): Promise<ActionResult> {
  await stage.publish(version, pluginFiles(version))
  return await deploy()
}

/**
 * Updates to this version, and returns true if the deployment used the kept code. A deployment replaces code that it
 * cannot use.
 */
async function usesWhatIsKept(version: string): Promise<boolean> {
  const before = statSync(compiled(), { bigint: true })
  assertSucceeds(await update(version))
  const after = statSync(compiled(), { bigint: true })
  return before.ctimeNs === after.ctimeNs
}

/**
 * Plants code as another user could: the file is valid for exactly this bundle and this Node.js, but the code also
 * prints a line.
 */
function plant(): void {
  const bundle = readFileSync(BUNDLE)
  const call = "process.stdout.on('error', () => { });"
  const evil = `console.log('${PLANTED}');`.padEnd(call.length)
  const text = bundle.toString().replace(call, evil)
  assert.ok(text.includes(evil) && text.length === bundle.toString().length)
  const script = new Script(text, { filename: BUNDLE })
  const code = script.createCachedData()
  const origin = `${process.version} ${process.arch} ${hash('sha256', bundle)}`
  const digest = hash('sha256', `${origin} ${hash('sha256', code)}`, 'buffer')
  writeFileSync(compiled(), Buffer.concat([digest, code]))
}

/** Continues on a host with 1.0.0, after code was planted in place of the code that the deployment kept. */
async function beginWithPlanted(): Promise<void> {
  const empty = stage
  const origin = await preparedOnce('planted', async () => {
    assertSucceeds(await deploy())
    plant()
    return stage
  })
  if (empty !== origin) await empty.close()
  stage = await openStage(origin)
  execFileSync('cp', ['-a', join(origin.folder, 'cache'), stage.folder])
}

describe('the compiled code that a deployment keeps', () => {
  it('is kept with mode 0600 by the first deployment, and used by later ones', async () => {
    assertSucceeds(await deploy())
    assert.equal(statSync(compiled()).mode & 0o7777, 0o600)
    assert.ok(await usesWhatIsKept('1.1.0'))
  })

  it('is replaced if it is torn or damaged, and does not hinder the deployment', { skip: ONLY_IN_CI }, async () => {
    assertSucceeds(await deploy())
    const whole = readFileSync(compiled())
    const damages: Record<string, Buffer> = {
      torn: whole.subarray(0, whole.length >> 1),
      zeros: Buffer.alloc(whole.length),
      damaged: Buffer.from(whole).fill(255, whole.length - 4096),
    }
    for (const [index, [name, bytes]] of sampled(Object.entries(damages), 2).entries()) {
      writeFileSync(compiled(), bytes)
      assert.equal(await usesWhatIsKept(`1.${index + 1}.0`), false, name)
      assert.ok(await usesWhatIsKept(`1.${index + 1}.1`), name)
    }
  })

  it('is replaced if Node.js refuses it because it was compiled with other options', async () => {
    assertSucceeds(await deploy({}, { NODE_OPTIONS: '--jitless' }))
    assert.equal(await usesWhatIsKept('1.1.0'), false)
    assert.ok(await usesWhatIsKept('1.2.0'))
  })

  it('is not written by a run that promises to change nothing', async () => {
    assert.equal((await deploy({ 'dry-run': 'true' })).exitCode, 0)
    assert.ok(!existsSync(own()))
    const { outputs } = await deploy()
    writeFileSync(compiled(), '')
    const digest = outputs['artifact-sha256'] ?? ''
    const check = { 'check-only': 'true', version: '1.0.0', 'artifact-sha256': digest }
    for (const inputs of [{ 'dry-run': 'true' }, check]) {
      const { exitCode, log } = await deploy(inputs)
      assert.equal(exitCode, 0, log)
      assert.equal(readFileSync(compiled(), 'utf8'), '')
    }
  })

  it('runs if only we can write to its folder, as planted code shows', async () => {
    await beginWithPlanted()
    assert.match((await update('1.1.0')).log, new RegExp(PLANTED))
  })

  it('is not read from the project root, where a service of the same user may write', async () => {
    await beginWithPlanted()
    for (const name of ['', '.hub-deploy', '.cache/hub-deploy', 'hub-deploy']) {
      mkdirSync(join(stage.root, name), { recursive: true, mode: 0o700 })
      copyFileSync(compiled(), join(stage.root, name, 'compiled'))
    }
    rmSync(own(), { recursive: true })
    assert.doesNotMatch((await update('1.1.0')).log, new RegExp(PLANTED))
  })

  /** Changes to the cache after which another user could have planted the code there. */
  const caches: Record<string, () => void> = {
    'in a folder that its group can write to': () => chmodSync(own(), 0o770),
    'below a folder that every user can write to': () => chmodSync(cache(), 0o777),
    'behind a symlink'() {
      renameSync(own(), join(stage.folder, 'real'))
      symlinkSync(join(stage.folder, 'real'), own())
    },
  }
  for (const [name, open] of Object.entries(caches)) {
    it(`never runs if it was planted ${name}`, async () => {
      await beginWithPlanted()
      open()
      assert.doesNotMatch((await deploy()).log, new RegExp(PLANTED))
    })
  }
})
