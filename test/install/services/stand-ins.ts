import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

type Program = 'systemctl' | 'docker' | 'kubectl'

/** Stand-ins for the supervisors' executables. They log their calls and remember the state of each service. */
export interface StandIns {
  /** The folder of the executables. */
  readonly bin: string
  /** A PATH on which the stand-ins come first. */
  readonly path: string
  /** Every call so far: the program and its arguments. */
  calls(): string[][]
  /** All calls except for queries and `reset-failed`, including those of added executables. */
  changes(): string[][]
  /** The environment of a program's last call. */
  environmentOf(program: string): Record<string, string>
  /**
   * A service's state: `active` or `inactive` for systemctl, `running` or `exited` for docker, and the number of
   * replicas for kubectl. Undefined if no call or `setState` has set it.
   */
  stateOf(service: string): string | undefined
  setState(service: string, state: string): void
  /** The content of `watched` when a service was last started or restarted. */
  running(): string | undefined
  /**
   * Sets the shell code that runs before each call with this action. In this code, `exit` prevents the action, and
   * `begin` counts as a start of the service.
   */
  before(program: Program, action: string, shell: string): void
  /** Adds another executable to the stand-ins. Returns the executable's path. */
  add(name: string, shell: string): string
  close(): void
}

const SYSTEMCTL = `
[ "$1" = --user ] && shift
action=$1
for service; do :; done
case $action in
  start | restart) keep active ;;
  stop) keep inactive ;;
  is-active) before; recall inactive; [ "$(recall inactive)" = active ] ;;
  show) before; echo "InvocationID=$(starts)" ;;
  reset-failed) before ;;
esac
`

const DOCKER = `
action=$1
for service; do :; done
case $action in
  start | restart) keep running ;;
  stop) keep exited ;;
  inspect) before; case $3 in *StartedAt*) starts ;; *) recall exited ;; esac ;;
esac
`

const KUBECTL = `
while [ "\${1#--}" != "$1" ]; do shift; done
action=$1
for service; do :; done
service=\${service##*/}
case $action in
  scale) keep "\${2#--replicas=}" ;;
  rollout) action=restart; keep "$(recall 1)" ;;
  get) 
    service=\${2##*/}; before "$@"
    case $* in
      *lastTransitionTime*) starts ;;
      *restartCount*) service=restarts; recall 0 ;;
      *) set -- $(recall 1); echo "1 1 $1 $1 $1 $1 {\\"app\\":\\"$service\\"}" ;;
    esac ;;
esac
`

const HARMLESS = ['is-active', 'show', 'inspect', 'get', 'reset-failed']

/** Creates stand-ins for systemctl, docker and kubectl. `watched` is the path of a file of the installed version. */
export function makeStandIns(watched = '/nothing'): StandIns {
  const folder = mkdtempSync(join(tmpdir(), 'stand-ins-'))
  const at = (...parts: string[]) => join(folder, ...parts)
  for (const name of ['bin', 'state', 'starts', 'before', 'environment']) mkdirSync(at(name))
  const prelude = (name: string) => `#!/bin/sh
cd '${folder}'
{ printf '%s' '${name}'; [ $# -eq 0 ] || printf '\\t%s' "$@"; echo; } >> calls
env > 'environment/${name}'
before() { [ ! -e "before/${name}.$action" ] || . "./before/${name}.$action"; }
recall() { cat "state/$service" 2>/dev/null || echo "$1"; }
keep() { before; echo "$1" > "state/$service"; case $1 in inactive | exited | 0) ;; *) begin ;; esac; }
begin() { echo >> "starts/$service"; cat '${watched}' > running 2>/dev/null || :; }
starts() { cat "starts/$service" 2>/dev/null | wc -l; }
`
  const add = (name: string, shell: string): string => {
    writeFileSync(at('bin', name), `${prelude(name)}${shell}\n`)
    chmodSync(at('bin', name), 0o755)
    return at('bin', name)
  }
  add('systemctl', SYSTEMCTL)
  add('docker', DOCKER)
  add('kubectl', KUBECTL)
  const text = (...parts: string[]) => (existsSync(at(...parts)) ? readFileSync(at(...parts), 'utf8') : '')
  const calls = (): string[][] =>
    text('calls')
      .split('\n')
      .slice(0, -1)
      .map(line => line.split('\t'))
  return {
    bin: at('bin'),
    path: `${at('bin')}:${process.env['PATH']}`,
    calls,
    changes: () => calls().filter(call => !HARMLESS.some(word => call.includes(word))),
    environmentOf: program => Object.fromEntries(text('environment', program).split('\n').slice(0, -1).map(pairOf)),
    stateOf: service => (readdirSync(at('state')).includes(service) ? text('state', service).trim() : undefined),
    setState: (service, state) => writeFileSync(at('state', service), `${state}\n`),
    running: () => text('running').trim() || undefined,
    before: (program, action, shell) => writeFileSync(at('before', `${program}.${action}`), `${shell}\n`),
    add,
    close: () => rmSync(folder, { recursive: true, force: true }),
  }
}

/** Creates stand-ins, and adds them to this process's `PATH` until the test ends. */
export function useStandIns(t: TestContext): StandIns {
  const standIns = makeStandIns()
  const path = process.env['PATH']
  process.env['PATH'] = standIns.path
  t.after(() => {
    standIns.close()
    process.env['PATH'] = path
  })
  return standIns
}

function pairOf(line: string): [string, string] {
  const equals = line.indexOf('=')
  return [line.slice(0, equals), line.slice(equals + 1)]
}
