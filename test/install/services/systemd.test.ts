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

const UNITS = {
  'web.service': '[Service]\nExecStart=/bin/sleep 600\n',
  'limited.service': '[Unit]\nStartLimitIntervalSec=60\nStartLimitBurst=2\n[Service]\nExecStart=/bin/sleep 600\n',
  'crashing.service':
    '[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sleep 0.4\nRestart=always\nRestartSec=0\n',
}

describe('systemd itself', () => {
  it('starts, restarts, stops, brings back and watches real user units', t => {
    const folder = temporaryDirectory(t)
    writeTree(join(folder, 'config/systemd/user'), UNITS)
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
      stoppedMissing: { isRunning: false, problems: [] },
      differentRuns: 3,
      oneStartTooMany: 'step_failed',
      limitedBroughtBack: { isRunning: true, problems: [] },
      limitedBroughtBackState: up,
      crashing: 'unhealthy',
      steady: 'healthy',
      refusal: 'step_failed',
    })
  })
})
