import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { newUploadFolder, removeLeftUploads } from '../../../hub/http/uploads.ts'
import { withoutRoot } from '../../folders.ts'
import { newFolder, runHub } from '../running-hub.ts'

const MODULE = resolve(import.meta.dirname, '../../../hub/http/uploads.ts')

describe('the folder of an upload', () => {
  it('is removed at the next start of a hub if its own hub was killed, however new it is', async t => {
    const dataDir = newFolder(t)
    const other = await uploadInProcess(t, dataDir)
    const own = await newUploadFolder(dataDir)
    await runHub(t, { dataDir })
    assert.deepEqual(namesIn(dataDir), [basename(own), basename(other.folder)].sort())
    await other.kill()
    await runHub(t, { dataDir })
    assert.deepEqual(namesIn(dataDir), [basename(own)])
  })

  it('is removed when another process now has the id of its hub', async t => {
    const dataDir = newFolder(t, { [`uploads/${process.pid}-1-aaaaaa/sealed`]: '' })
    await runHub(t, { dataDir })
    assert.deepEqual(namesIn(dataDir), [])
  })

  it('stays if its name is not one that a hub gives', async t => {
    const names = ['upload-1', '1-1-aaaaaaa', '1-1-aaaaaa.old', 'x1-1-aaaaaa', '1-aaaaaa']
    const dataDir = newFolder(t, Object.fromEntries(names.map(name => [`uploads/${name}/sealed`, ''])))
    await runHub(t, { dataDir })
    assert.deepEqual(namesIn(dataDir), names.sort())
  })

  it('does not keep a hub from starting when it cannot be removed, and the others are still removed', async t => {
    const dataDir = newFolder(t)
    const uploads = join(dataDir, 'uploads')
    const [stuck, free] = [join(uploads, `${process.pid}-1-aaaaaa`), join(uploads, `${process.pid}-1-bbbbbb`)]
    for (const folder of [stuck, free]) mkdirSync(folder, { recursive: true })
    writeFileSync(join(stuck, 'sealed'), '')
    for (const [path, mode] of [
      [dataDir, 0o755],
      [uploads, 0o777],
      [stuck, 0o555],
    ] as const)
      chmodSync(path, mode)
    const log: string[] = []
    await withoutRoot(() => removeLeftUploads(dataDir, line => log.push(line)))
    assert.deepEqual(namesIn(dataDir), [basename(stuck)])
    assert.equal(log.length, 1)
    assert.ok(log[0]?.startsWith(`${stuck} cannot be removed (EACCES)`), log[0])
    chmodSync(stuck, 0o755)
  })

  it('does not keep a hub from starting when its parent is a file', async t => {
    const dataDir = newFolder(t, { uploads: '' })
    const log: string[] = []
    await runHub(t, { dataDir, log: line => log.push(line) })
    assert.deepEqual(log, [cannotBeListed(dataDir, 'ENOTDIR')])
  })

  it('does not keep a hub from starting when its parent cannot be listed', async t => {
    const dataDir = newFolder(t, { [`uploads/${process.pid}-1-aaaaaa/sealed`]: '' })
    chmodSync(dataDir, 0o755)
    chmodSync(join(dataDir, 'uploads'), 0o311)
    const log: string[] = []
    await withoutRoot(() => removeLeftUploads(dataDir, line => log.push(line)))
    chmodSync(join(dataDir, 'uploads'), 0o755)
    assert.deepEqual(log, [cannotBeListed(dataDir, 'EACCES')])
  })
})

function cannotBeListed(dataDir: string, code: string): string {
  return `${join(dataDir, 'uploads')} cannot be listed (${code}), so uploads that killed hubs left in it remain, and new uploads may fail: make it a folder that the hub's user can read and write, and restart the hub.`
}

function namesIn(dataDir: string): string[] {
  return readdirSync(join(dataDir, 'uploads')).sort()
}

/** Starts another process that has just begun an upload. */
async function uploadInProcess(t: TestContext, dataDir: string) {
  const program = `import { newUploadFolder } from ${JSON.stringify(MODULE)}
process.stdout.write(await newUploadFolder(${JSON.stringify(dataDir)}))
setInterval(() => {}, 1000)`
  const child = spawn(process.execPath, ['--input-type=module', '-e', program])
  const kill = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return
    child.kill('SIGKILL')
    await once(child, 'exit')
  }
  t.after(kill)
  const [folder] = await once(child.stdout, 'data')
  return { folder: String(folder), kill }
}
