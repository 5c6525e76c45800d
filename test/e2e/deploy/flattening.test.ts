import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { publishGitCommit } from '../../../hub/marketplace/publish.ts'
import { buildZip, directory, file, symlink } from '../../archives/zip-builder.ts'
import { listTree } from '../../folders.ts'
import { readLocalReport } from '../harness/evidence.ts'
import { openStage, pluginFiles, SIGNING_SECRET, type Stage, writeFiles } from '../harness/stage.ts'

let stage: Stage
beforeEach(async () => {
  stage = await openStage()
})
afterEach(() => stage.close())

async function installedFrom(): Promise<Record<string, string>> {
  const result = await stage.deploy()
  assert.equal(result.exitCode, 0, result.log)
  return listTree(join(stage.root, 'plugins/greeter'))
}

describe('an archive of a repository, as made by a code host,', () => {
  it('loses its single top-level directory and keeps programs and symlinks', async () => {
    const repository = join(stage.workspace.path, 'greeter')
    mkdirSync(repository)
    writeFiles(repository, pluginFiles('1.0.0', { 'bin/start': '#!/bin/sh\n' }))
    chmodSync(join(repository, 'bin/start'), 0o755)
    symlinkSync('../src/main.py', join(repository, 'bin/main'))
    const git = (...args: string[]) =>
      execFileSync('git', ['-c', 'user.name=dev', '-c', 'user.email=dev@dev.example', ...args], { cwd: repository })
    git('init', '--quiet')
    git('add', '.')
    git('commit', '--quiet', '--message', 'First')
    git('tag', 'v1.0.0')
    const publication = { kind: 'plugin', slug: 'greeter', version: '1.0.0', signingSecret: SIGNING_SECRET } as const
    await publishGitCommit(stage.store, { repository, ref: 'v1.0.0' }, { ...publication, repo: 'dev/greeter@v1.0.0' })
    assert.deepEqual(await installedFrom(), {
      bin: '755 directory',
      'bin/main': '-> ../src/main.py',
      'bin/start': '755 #!/bin/sh\n',
      'plugin.yaml': `644 ${pluginFiles('1.0.0')['plugin.yaml']}`,
      src: '755 directory',
      'src/main.py': `644 ${pluginFiles('1.0.0')['src/main.py']}`,
    })
    const again = await stage.deploy()
    assert.deepEqual([again.exitCode, again.outputs['changed']], [0, 'false'])
    assert.equal(readLocalReport(again).repo, 'dev/greeter@v1.0.0')
  })
})

describe('an archive', () => {
  const manifest = file('plugin.yaml', 'name: greeter\nversion: "1.0.0"\n')

  it('with a file next to its only directory is not flattened', async () => {
    await stage.publishBytes('1.0.0', buildZip([manifest, directory('src/'), file('src/main.py', 'x')]))
    assert.deepEqual(Object.keys(await installedFrom()).sort(), ['plugin.yaml', 'src', 'src/main.py'])
  })

  it('is flattened once, not twice', async () => {
    await stage.publishBytes('1.0.0', buildZip([{ ...manifest, name: 'top/plugin.yaml' }, file('top/top/inner', 'x')]))
    assert.deepEqual(Object.keys(await installedFrom()).sort(), ['plugin.yaml', 'top', 'top/inner'])
  })

  it('with two top-level directories is not flattened, and is therefore not a plugin', async () => {
    await stage.publishBytes('1.0.0', buildZip([{ ...manifest, name: 'top/plugin.yaml' }, file('other/file', 'x')]))
    const { outputs, log } = await stage.deploy()
    assert.equal(outputs['error-code'], 'not_a_plugin')
    assert.match(log, /it has top\/plugin\.yaml, and next to that directory: other; only a single top-level directory/)
  })

  it('may have a leading ./ in every name, as some archivers write it', async () => {
    const names = [directory('./'), directory('./top/'), { ...manifest, name: './top/plugin.yaml' }]
    await stage.publishBytes('1.0.0', buildZip([...names, file('./top/src/main.py', 'x')]))
    assert.deepEqual(Object.keys(await installedFrom()).sort(), ['plugin.yaml', 'src', 'src/main.py'])
  })

  const STRAYS = [directory('__MACOSX/'), file('__MACOSX/top/._main.py', 'x'), file('.DS_Store', 'x')]
  for (const top of ['top/', ''])
    it(`loses what macOS adds next to ${top || 'files'}`, async () => {
      const items = [
        { ...manifest, name: `${top}plugin.yaml` },
        file(`${top}src/main.py`, 'x'),
        file(`${top}src/.DS_Store`, 'x'),
      ]
      await stage.publishBytes('1.0.0', buildZip([...STRAYS, symlink('__MACOSX/l', 'top'), ...items]))
      const { log } = await stage.deploy()
      const installed = Object.keys(listTree(join(stage.root, 'plugins/greeter')))
      assert.deepEqual(installed.sort(), ['plugin.yaml', 'src', 'src/.DS_Store', 'src/main.py'])
      assert.match(log, /::notice::The artifact's top-level __MACOSX and \.DS_Store were left out: macOS adds them/)
    })

  it('with nothing but what macOS adds is installed as it is', async () => {
    const service = { kind: 'service' } as const
    await stage.publishBytes('1.0.0', buildZip([file('.DS_Store', 'x')]), service)
    const { exitCode, log } = await stage.deploy({ kind: 'service', 'install-plan': '' })
    assert.equal(exitCode, 0, log)
    assert.deepEqual(Object.keys(listTree(join(stage.root, 'extensions/greeter'))), ['.DS_Store'])
  })

  it('of a service with one entry next to its only directory is named in a notice', async () => {
    const items = [file('greeter-1.0/svc.py', 'x'), file('LICENSE', 'x')]
    await stage.publishBytes('1.0.0', buildZip(items), { kind: 'service' })
    const { exitCode, log } = await stage.deploy({ kind: 'service', 'install-plan': '' })
    assert.equal(exitCode, 0, log)
    assert.match(
      log,
      /::notice::The artifact has greeter-1\.0, LICENSE at its top, so greeter-1\.0 is installed as a directory/,
    )
  })

  it('never makes a file set-uid or writable by others', async () => {
    const program = { ...file('tool', 'x'), mode: 0o104777 }
    await stage.publishBytes('1.0.0', buildZip([manifest, program, { ...file('open', 'x'), mode: 0o100666 }]))
    const installed = await installedFrom()
    assert.deepEqual([installed['tool'], installed['open']], ['755 x', '644 x'])
  })
})
