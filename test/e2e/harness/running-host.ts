import { type HostStage, openOldHost } from './host-stage.ts'

export const RESTART = 'action: restart, plugin: greeter'
export const RESTART_ALL = 'action: restart'
export const PROVISION = 'action: provision, plugin: greeter'
/** Shell: true if the new version was started last. */
export const IS_NEW = 'grep -q 2.0.0 running 2> /dev/null'

/** A health check step with this timeout, in seconds. If the version is broken, the step takes all of that time. */
export function healthcheck({ timeout, retries = 0 }: { timeout: number; retries?: number }): string {
  return `action: healthcheck, plugin: greeter, timeout: ${timeout}, retries: ${retries}`
}

/**
 * Shell: prints a text and hangs. A check that exits is repeated, and a busy machine could cut the last repetition
 * short.
 */
export const hangSaying = (text: string): string => `echo "${text}"; exec sleep 3600`

/**
 * A host on which 1.0.0 is installed and runs, next to a project-wide unit, and a hub with 2.0.0. The health check
 * passes only for the old version: for the new one, it hangs. The provision command fails.
 */
export async function openRunningHost(): Promise<HostStage> {
  const stage = await openOldHost()
  const { standIns } = stage
  stage.writeHostConfig(runningHostConfig(stage))
  for (const unit of ['greeter.service', 'app.service']) standIns.setState(unit, 'active')
  standIns.add('check', `if ${IS_NEW}; then ${hangSaying('still broken')}; fi; echo fine`)
  standIns.add('make-db', 'echo "no database" >&2; exit 4')
  return stage
}

export function runningHostConfig({ standIns: { bin } }: HostStage): string {
  return `version: 1
supervisor: systemd
systemd: {project_unit: app.service}
plugins: {greeter: {healthcheck: {command: [${bin}/check]}}}
provision: {greeter: {command: [${bin}/make-db], timeout: 60s}}
`
}

/** The changes that systemctl was asked for, in order. */
export function unitChanges({ standIns }: HostStage): string[] {
  return standIns.changes().flatMap(([program, ...args]) => (program === 'systemctl' ? [args.join(' ')] : []))
}
