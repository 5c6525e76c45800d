import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { temporaryDirectory, writeTree } from '../temporary-directory.ts'

/**
 * Starts a user manager in namespaces of its own, where nothing of this machine's own systemd is seen or touched, and runs the
 * command line behind it. Exit code 77: there is none to be had here.
 */
const SESSION = `
mount -t tmpfs tmpfs /run/systemd 2>&1 && mkdir /run/systemd/system || exit 77
/lib/systemd/systemd --user --unit=basic.target --log-target=null &
for try in 1 2 3 4 5 6 7 8 9 10; do
  sleep 0.3
  systemctl --user is-active --quiet basic.target 2>/dev/null && break
done
systemctl --user is-active --quiet basic.target || { echo "no user manager came up"; exit 77; }
"$@"
code=$?
systemctl --user exit
wait
exit $code
`

describe('systemd itself', () => {
  it('starts, restarts, stops and brings back a real user unit', t => {
    const folder = temporaryDirectory(t)
    writeTree(folder, { 'config/systemd/user/web.service': '[Service]\nExecStart=/bin/sleep 600\n' })
    const namespaces = ['--mount', '--cgroup', '--pid', '--fork', '--mount-proc', '--kill-child']
    const command = ['sh', '-c', SESSION, 'sh', process.execPath, join(import.meta.dirname, 'systemd-session.ts')]
    const { error, status, stdout, stderr } = spawnSync('unshare', [...namespaces, ...command], {
      encoding: 'utf8',
      timeout: 60_000,
      env: {
        PATH: process.env['PATH'],
        HOME: folder,
        XDG_RUNTIME_DIR: folder,
        XDG_CONFIG_HOME: join(folder, 'config'),
      },
    })
    const isImpossible = error !== undefined || status === 77 || /^unshare:/m.test(stderr)
    if (isImpossible) return t.skip(`no user manager of systemd can be started here: ${error ?? stdout + stderr}`)
    assert.equal(status, 0, stderr)
    const up = { known: true, up: true, running: true }
    const down = { known: true, up: false, running: false }
    assert.deepEqual(JSON.parse(stdout), {
      before: down,
      missing: down,
      started: up,
      stopped: down,
      broughtBack: { isRunning: true, problems: [] },
      broughtBackState: up,
      stoppedAgain: { isRunning: false, problems: [] },
      stoppedAgainState: down,
      refusal: 'step_failed',
    })
  })
})
