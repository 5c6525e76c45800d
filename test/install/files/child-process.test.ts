import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdirSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import {
  allowedEnvironment,
  type ChildRequest,
  endlessGrace,
  runChild,
  startGrace,
} from '../../../src/install/files/child-process.ts'
import { temporaryDirectory } from '../../folders.ts'

function script(source: string, more: Partial<ChildRequest> = {}): ChildRequest {
  return { command: [process.execPath, '-e', source], env: {}, timeoutMs: 60_000, ...more }
}

describe('runChild', () => {
  it('returns the exit code and the output', async () => {
    const end = await runChild(script('console.log("out"); console.error("err"); process.exitCode = 3'))
    assert.ok(end.kind === 'exited')
    assert.deepEqual([end.code, end.output.split('\n').sort(), end.stdout], [3, ['', 'err', 'out'], 'out\n'])
  })

  it('returns the signal that ended a child', async () => {
    const end = await runChild(script('process.kill(process.pid, "SIGUSR2")'))
    assert.equal(end.kind === 'signalled' && end.signal, 'SIGUSR2')
  })

  it('reports a program that does not exist', async () => {
    const end = await runChild({ command: ['/no/such/program'], env: {}, timeoutMs: 1000 })
    assert.equal(end.kind, 'not_started')
  })

  const scripts: [text: string, found: RegExp][] = [
    ['#!/bin/sh\r\nexit 0\r\n', /its interpreter "\/bin\/sh\\r" does not exist: the lines of the script end in CRLF/],
    ['#! /no/such/python3 -u\n', /its interpreter "\/no\/such\/python3" does not exist: install it/],
  ]
  for (const [text, found] of scripts)
    it(`says which interpreter a script lacks: ${JSON.stringify(text)}`, async t => {
      const path = join(temporaryDirectory(t), 'script')
      writeFileSync(path, text, { mode: 0o755 })
      const end = await runChild({ command: [path], env: {}, timeoutMs: 1000 })
      assert.ok(end.kind === 'not_started')
      assert.match(end.error.message, found)
    })

  it('reports a program that cannot be started because its arguments are too long', async () => {
    const end = await runChild(script('', { command: [process.execPath, 'x'.repeat(200_000)] }))
    assert.equal(end.kind === 'not_started' && (end.error as NodeJS.ErrnoException).code, 'E2BIG')
  })

  for (const run of ['runChild', 'readChild']) {
    it(`reports a program that cannot be started without free descriptors (${run})`, async () => {
      const module = JSON.stringify(join(import.meta.dirname, '../../../src/install/files/child-process.ts'))
      const source = `import { openSync } from 'node:fs'
        import { ${run} as run } from ${module}
        const request = { command: ['/bin/true'], env: {}, timeoutMs: 1000 }
        await run(request, async () => {})
        try { for (;;) openSync('/dev/null') } catch {}
        const found = await run(request, async () => {})
        const { kind, error } = found.end ?? found
        console.log(kind, error?.code)`
      const limited = ['-c', 'ulimit -n 200; exec "$@"', 'sh', process.execPath, '--input-type=module', '-e', source]
      const end = await runChild({ command: ['/bin/sh', ...limited], env: {}, timeoutMs: 60_000 })
      assert.equal(end.kind === 'exited' && end.output, 'not_started EMFILE\n')
    })
  }

  it('keeps the first 2 KiB of the output, and marks the cut', async () => {
    const end = await runChild(script('process.stdout.write("x".repeat(100_000))'))
    assert.equal(end.kind === 'exited' && end.output, `${'x'.repeat(2048)}… (cut)`)
    const whole = await runChild(script('process.stdout.write("x".repeat(2048))'))
    assert.equal(whole.kind === 'exited' && whole.output, 'x'.repeat(2048))
  })

  it('drops a character that the cut divides', async () => {
    const end = await runChild(script('process.stdout.write("x" + "é".repeat(2000))'))
    assert.equal(end.kind === 'exited' && end.output, `x${'é'.repeat(1023)}… (cut)`)
  })

  it('passes arguments unchanged, without a shell', async () => {
    const args = ['$HOME; echo *', '`id`', '']
    const end = await runChild({
      ...script(''),
      command: [process.execPath, '-e', 'console.log(JSON.stringify(process.argv.slice(1)))', '--', ...args],
    })
    assert.deepEqual(end.kind === 'exited' && JSON.parse(end.output), args)
  })

  it('gives the child the named environment and nothing else, and no standard input', async () => {
    const source =
      'console.log(JSON.stringify([process.env.ONE, process.env.HOME, require("fs").readFileSync(0).length]))'
    const end = await runChild(script(source, { env: { ONE: '1' } }))
    assert.deepEqual(end.kind === 'exited' && JSON.parse(end.output), ['1', null, 0])
  })

  it('stops a child after its timeout', async () => {
    assert.equal((await runChild(script('setTimeout(() => {}, 60_000)', { timeoutMs: 200 }))).kind, 'timed_out')
  })

  it('stops every process that a child started', async t => {
    const server = createServer().listen(0, '127.0.0.1')
    t.after(() => server.close())
    await once(server, 'listening')
    const grandchild = `require("net").connect(${(server.address() as AddressInfo).port}, "127.0.0.1")`
    const source = `require("child_process").spawn(process.execPath, ["-e", ${JSON.stringify(grandchild)}]); setTimeout(() => {}, 60_000)`
    const controller = new AbortController()
    const run = assert.rejects(runChild(script(source, { signal: controller.signal })), { message: 'cancelled' })
    const [socket] = await once(server, 'connection')
    const closed = once(socket.on('error', () => {}).resume(), 'close')
    controller.abort(new Error('cancelled'))
    await Promise.all([run, closed])
  })

  it("rejects with the signal's reason once the child has exited", async () => {
    const controller = new AbortController()
    const reason = new Error('cancelled')
    const run = runChild(script('setTimeout(() => {}, 60_000)', { signal: controller.signal }))
    setImmediate(() => controller.abort(reason))
    await assert.rejects(run, error => error === reason)
    await assert.rejects(runChild(script('', { signal: controller.signal })), error => error === reason)
  })

  it('does not wait for a child that leaves its output open', async () => {
    const daemon = 'setTimeout(() => {}, 2000)'
    const source = `require("child_process").spawn(process.execPath, ["-e", ${JSON.stringify(daemon)}], {detached: true, stdio: "inherit"}).unref(); console.log("started")`
    const end = await runChild(script(source, { timeoutMs: 60_000 }))
    assert.equal(end.kind === 'exited' && end.output, 'started\n')
  })
})

describe('allowedEnvironment', () => {
  it('contains only the allowed variables and the given ones', () => {
    const names = Object.keys(allowedEnvironment({ PGHOST: 'db' }))
    assert.ok(names.includes('PATH') && names.includes('PGHOST'))
    assert.deepEqual(
      names.filter(name => !['PATH', 'HOME', 'LANG', 'TZ', 'PGHOST'].includes(name)),
      [],
    )
  })

  for (const planted of ['', '.', 'bin', './bin', ':bin:.:']) {
    it(`finds no program in the current folder through a PATH that begins with ${JSON.stringify(planted)}`, async t => {
      const folder = temporaryDirectory(t)
      const program = { mode: 0o755 }
      mkdirSync(join(folder, 'bin'))
      for (const path of ['true', 'bin/true']) writeFileSync(join(folder, path), '#!/bin/sh\necho planted\n', program)
      const before = process.env['PATH']
      t.after(() => {
        process.env['PATH'] = before
      })
      for (const path of [planted, `${planted}:/usr/bin:/bin`]) {
        process.env['PATH'] = path
        for (const env of [allowedEnvironment(), allowedEnvironment({ PATH: path })]) {
          const end = await runChild({ command: ['true'], env, cwd: folder, timeoutMs: 60_000 })
          assert.deepEqual([end.kind === 'exited' && [end.code, end.output], env['PATH']], [[0, ''], '/usr/bin:/bin'])
        }
      }
    })
  }
})

const AT_ONCE = { comparing: 1, restoring: 2, reporting: 3 }
const LATER = ['comparing', 'restoring', 'reporting'] as const

describe('startGrace', () => {
  for (const when of ['before', 'after']) {
    it(`ends the periods of grace one after another if the cancel comes ${when} the start`, async () => {
      const cancel = new AbortController()
      if (when === 'before') cancel.abort()
      const grace = startGrace(cancel.signal, AT_ONCE)
      const ended: string[] = []
      for (const name of LATER) grace[name].addEventListener('abort', () => ended.push(name))
      // The timers of the grace periods do not keep the process alive, so this timer does.
      const alive = setInterval(() => {}, 1000)
      const all = Promise.all(LATER.map(name => once(grace[name], 'abort')))
      cancel.abort()
      await all
      clearInterval(alive)
      assert.deepEqual(ended, [...LATER])
    })
  }

  it('aborts only `cancelled` at once, and nothing without a cancel', () => {
    const cancel = new AbortController()
    for (const grace of [startGrace(cancel.signal, AT_ONCE), endlessGrace()])
      assert.ok(LATER.every(name => !grace[name].aborted))
    const grace = startGrace(cancel.signal)
    cancel.abort()
    assert.deepEqual([grace.cancelled.aborted, ...LATER.map(name => grace[name].aborted)], [true, false, false, false])
  })
})
