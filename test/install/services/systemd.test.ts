import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { temporaryDirectory, writeTree } from '../temporary-directory.ts'

/**
 * Starts a user manager in namespaces of its own, out of reach of this machine's systemd, and runs the command line
 * next to it. Exit code 77: no user manager can be started here.
 */
const SESSION = `
mount -t tmpfs tmpfs /run/systemd 2>&1 && mkdir /run/systemd/system || exit 77
/lib/systemd/systemd --user --unit=basic.target --log-target=null &
manager=$!
for try in $(seq 100); do
  sleep 0.3
  systemctl --user is-active --quiet basic.target 2>/dev/null && break
  kill -0 $manager 2>/dev/null || break
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
  it('starts, restarts, stops, restores and watches real user units', t => {
    const folder = temporaryDirectory(t)
    writeTree(join(folder, 'config/systemd/user'), UNITS)
    const namespaces = ['--mount', '--cgroup', '--pid', '--fork', '--mount-proc', '--kill-child']
    const command = ['sh', '-c', SESSION, 'sh', process.execPath, join(import.meta.dirname, 'systemd-session.ts')]
    const { error, status, stdout, stderr } = spawnSync('unshare', [...namespaces, ...command], {
      encoding: 'utf8',
      timeout: 300_000,
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
      restored: { isRunning: true, problems: [] },
      restoredState: up,
      stoppedAgain: { isRunning: false, problems: [] },
      stoppedAgainState: down,
      stoppedMissing: { isRunning: false, problems: [] },
      differentRuns: 3,
      oneStartTooMany: 'step_failed',
      limitedRestored: { isRunning: true, problems: [] },
      limitedRestoredState: up,
      crashing: 'unhealthy',
      steady: 'healthy',
      refusal: 'step_failed',
    })
  })
})
