import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { HANG_LIMIT_MS, whyRightsAreLeftToCi } from '../../extent.ts'
import { temporaryDirectory, writeTree } from '../../folders.ts'

/**
 * A shell script for new namespaces. It hides this machine's systemd, starts a user manager and runs its arguments as a
 * command. It exits with the exit code of the command, or with 77 if no user manager can be started here.
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

/**
 * Runs a script next to a real user manager that knows these units, and returns the script's output, parsed as JSON.
 * Skips the test and returns undefined if no such manager can be started. Throws if the script fails.
 */
export function runNextToManager(t: TestContext, script: string, units: Readonly<Record<string, string>>): unknown {
  const left = whyRightsAreLeftToCi()
  if (left !== false) {
    t.skip(left)
    return undefined
  }
  const folder = temporaryDirectory(t)
  writeTree(join(folder, 'config/systemd/user'), units)
  const namespaces = ['--mount', '--cgroup', '--pid', '--fork', '--mount-proc', '--kill-child']
  const { error, status, stdout, stderr } = spawnSync(
    'unshare',
    [...namespaces, 'sh', '-c', SESSION, 'sh', process.execPath, script],
    {
      encoding: 'utf8',
      timeout: HANG_LIMIT_MS,
      env: {
        PATH: process.env['PATH'],
        HOME: folder,
        XDG_RUNTIME_DIR: folder,
        XDG_CONFIG_HOME: join(folder, 'config'),
      },
    },
  )
  if (status === 0) return JSON.parse(stdout)
  const isImpossible = error !== undefined || status === 77 || /^unshare:/m.test(stderr)
  if (!isImpossible) throw new Error(stderr)
  t.skip(`no user manager of systemd can be started here: ${error ?? stdout + stderr}`)
  return undefined
}
