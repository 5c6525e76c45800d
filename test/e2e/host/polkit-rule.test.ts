import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { blocksOf } from '../../doc-pages.ts'
import { missingTools, whyRightsAreLeftToCi } from '../../extent.ts'
import { temporaryDirectory, writeTree } from '../../folders.ts'
import { boot, withMachines } from '../harness/booted-host.ts'

/** The rule as an operator copies it from the page. */
const [RULE = ''] = blocksOf('docs/security.md')
  .filter(({ language }) => language === 'js')
  .map(({ text }) => text)

const RUNNER = 54_001
const OTHER = 54_002
/** The accounts that the bus and polkit know in addition to those of this machine. */
const ACCOUNTS = `runner:x:${RUNNER}:${RUNNER}::/:/bin/sh\nintruder:x:${OTHER}:${OTHER}::/:/bin/sh\n`

/** The units with which Debian's packages start the bus and polkit. */
const UNITS = '/usr/lib/systemd/system'
const PACKAGED = ['dbus.socket', 'dbus.service', 'polkit.service'].map(name => join(UNITS, name))
const skip =
  whyRightsAreLeftToCi() ||
  missingTools('dbus-daemon', 'pkcheck', 'systemctl') ||
  (PACKAGED.some(path => !existsSync(path)) && `needs ${PACKAGED.join(', ')}`)

/** What the product asks of systemd: see `superviseService`. */
const GRANTED = ['stop', 'start', 'restart', 'reset-failed'].map(verb => `systemctl ${verb} greeter.service`)

/** Each of these would let the user decide more than when the unit runs. The first five can make that user root. */
const BEYOND = [
  'systemctl bind greeter.service /usr /run/greeter',
  'systemctl mount-image greeter.service /none.raw /mnt',
  'systemctl set-property greeter.service CPUWeight=50',
  'systemd-run --unit=greeter.service true',
  'systemd-run --unit=unknown.service true',
  'systemctl kill greeter.service',
  'systemctl clean greeter.service',
  'systemctl freeze greeter.service',
  'systemctl thaw greeter.service',
  'systemctl reload greeter.service',
  'systemctl reload-or-restart greeter.service',
  'systemctl try-restart greeter.service',
  'systemctl enable greeter.service',
  'systemctl mask greeter.service',
  'systemctl set-environment LD_PRELOAD=/none.so',
  'systemctl daemon-reload',
  'systemctl isolate multi-user.target',
  'systemctl reset-failed',
]

/** The four verbs for another unit, and units whose names begin or end in the same way. */
const OF_OTHER_UNITS = [
  ...GRANTED.map(command => command.replace('greeter', 'sshd')),
  ...['my-greeter.service', 'greeter.service.service', 'greeter.socket'].map(unit => `systemctl start ${unit}`),
]

/** What systemd 257 and later ask of polkit when a user defines a unit that has no file. */
const DEFINITION = askStart('Authentication is required to start transient unit.')
/** The same question about an ordinary start. */
const START = askStart('Authentication is required to start it.')

function askStart(message: string): string {
  return `pkcheck --detail unit greeter.service --detail verb start --detail polkit.message '${message}'`
}

/**
 * Prints, for each user and command, `allowed`, `refused`, or what else the command printed. Only root may name the
 * details that pkcheck asks about, so pkcheck asks for a process of the user.
 */
const ASK = `
ask() {
  case $2 in
    */node*)
      answer=$(setpriv --reuid=$1 --regid=$1 --clear-groups $2 2>&1 < /dev/null) ;;
    pkcheck*)
      setpriv --reuid=$1 --regid=$1 --clear-groups sleep 600 &
      until [ "$(stat -c %u /proc/$!)" = $1 ]; do sleep 0.01; done
      answer=$(eval "$2 --action-id org.freedesktop.systemd1.manage-units --process $!" 2>&1) && answer=allowed
      kill $! ;;
    *) answer=$(setpriv --reuid=$1 --regid=$1 --clear-groups $2 2>&1 < /dev/null) && answer=allowed ;;
  esac
  case $answer in
    '{'*) ;;
    *'Access denied'* | *'nteractive authentication required'* | *'requires authentication'*) answer=refused ;;
  esac
  echo "$answer" | tr '\\n' ' '
  echo
}
`

const service = (more = ''): string => `[Service]
ExecStart=/bin/sleep 600
ExecReload=/bin/true
PrivateTmp=yes
${more}
`

/** Boots systemd, the bus and polkit with this rule only, and returns what each user may do, by user and command. */
async function ask(t: TestContext, rule: string, requests: readonly [user: number, command: string][]) {
  const folder = temporaryDirectory(t)
  const lines = requests.map(([user, command]) => `ask ${user} "${command}"`).join('\n')
  writeTree(folder, {
    'rules/50-hub-deploy.rules': rule,
    passwd: readFileSync('/etc/passwd', 'utf8') + ACCOUNTS,
    'ask.sh': `${ASK}cd ${folder}\n{\n${lines}\n} > asked\nmv asked answers\n`,
  })
  const [socket = '', bus = '', polkit = ''] = PACKAGED.map(path => readFileSync(path, 'utf8'))
  const accounts = `\n[Service]\nBindReadOnlyPaths=${folder}/passwd:/etc/passwd\n`
  const rules = `BindReadOnlyPaths=${folder}/rules:/etc/polkit-1/rules.d
TemporaryFileSystem=/usr/share/polkit-1/rules.d
`
  const needed = 'polkit.service greeter.service sshd.service'
  const machine = boot({
    folder,
    units: {
      'dbus.socket': socket,
      'dbus.service': bus + accounts,
      'polkit.service': polkit + accounts + rules,
      'greeter.service': service('RuntimeDirectory=greeter'),
      'sshd.service': service(),
      'asker.service': `[Unit]
Wants=${needed}
After=${needed}
[Service]
ExecStart=/bin/sh ${folder}/ask.sh
[Install]
WantedBy=multi-user.target
`,
    },
    enable: ['asker.service'],
  })
  try {
    const answers = (await machine.read('answers')).split('\n').map(answer => answer.trim())
    return Object.fromEntries(requests.map(([user, command], at) => [`${user}: ${command}`, answers[at]]))
  } finally {
    await machine.cutPower()
  }
}

const by = (user: number, commands: readonly string[]): [number, string][] => commands.map(command => [user, command])
const answering = (answer: string, requests: readonly [number, string][]): Record<string, string> =>
  Object.fromEntries(requests.map(([user, command]) => [`${user}: ${command}`, answer]))

/** The rule without the line that contains this text. */
function without(text: string): string {
  const kept = RULE.split('\n').filter(line => !line.includes(text))
  assert.equal(kept.length, RULE.split('\n').length - 1)
  return kept.join('\n')
}

describe('the polkit rule of docs/security.md, under systemd and polkit', { skip }, () => {
  it("lets only the runner's user start, stop, restart and reset the named unit, and do nothing else", async t => {
    await withMachines(t, async () => {
      const refused = [
        ...by(RUNNER, [...BEYOND, ...OF_OTHER_UNITS, DEFINITION]),
        ...by(OTHER, [...GRANTED, ...BEYOND, START, DEFINITION]),
      ]
      const granted = by(RUNNER, [...GRANTED, START])
      assert.deepEqual(await ask(t, RULE, [...refused, ...granted]), {
        ...answering('refused', refused),
        ...answering('allowed', granted),
      })
    })
  })

  it('is what a restart by another user lacks, which is not a sign of an ill service', async t => {
    await withMachines(t, async () => {
      const session = `${process.execPath} ${join(import.meta.dirname, '../harness/refused-restart.ts')}`
      const requests = by(OTHER, [session]).concat(by(RUNNER, [session]))
      const [refused, granted] = Object.values(await ask(t, RULE, requests)).map(answer => {
        assert.match(answer ?? '', /^{/)
        return JSON.parse(answer ?? '')
      })
      assert.match(refused.message, /lacks the polkit rule.*The old process of greeter\.service never stopped\.$/)
      const running = { problems: [], isRunning: true, running: true }
      assert.deepEqual(refused, { message: refused.message, untouched: ['greeter'], ...running })
      assert.deepEqual(granted, { message: 'restarted', untouched: [], ...running })
    })
  })

  it('would let that user mount into the unit, change its properties and kill it, without the verbs', async t => {
    await withMachines(t, async () => {
      const [bind = '', , setProperty = ''] = BEYOND
      const requests = by(RUNNER, [bind, setProperty, 'systemctl kill greeter.service'])
      // Not all of them succeed: this machine has no mounts that systemd could pass on to the unit.
      const answers = Object.values(await ask(t, without("lookup('verb')"), requests))
      assert.ok(answers.length === requests.length && !answers.includes('refused'), answers.join('\n'))
    })
  })

  it('would let that user define a unit that has no file, without the message', async t => {
    await withMachines(t, async () => {
      const requests = by(RUNNER, [DEFINITION])
      assert.deepEqual(await ask(t, without('polkit.message'), requests), answering('allowed', requests))
    })
  })
})
