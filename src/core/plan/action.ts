/** All actions that a plan can ask for. None of them runs a command from the plan. */
export const ACTIONS = [
  'prepare',
  'download',
  'extract',
  'rollback',
  'provision',
  'install_plugin',
  'install_extension',
  'configure_plugin',
  'write_env',
  'start',
  'stop',
  'restart',
  'healthcheck',
  'notify',
] as const

export type Action = (typeof ACTIONS)[number]

const MARKER_ACTIONS = ['prepare', 'download', 'extract', 'rollback', 'configure_plugin'] as const

export type MarkerAction = Extract<Action, (typeof MARKER_ACTIONS)[number]>

/**
 * True if a step with this action has nothing to do: the deployment does the work of the action anyway, or the step
 * only orders other steps.
 */
export function isMarkerAction(action: string): action is MarkerAction {
  return MARKER_ACTIONS.some(marker => marker === action)
}

const INSTALL_ACTIONS = ['install_plugin', 'install_extension'] as const

export type InstallAction = Extract<Action, (typeof INSTALL_ACTIONS)[number]>

/** True if steps with this action, in a plan or in a report, install a part. */
export function isInstallAction(action: string): action is InstallAction {
  return INSTALL_ACTIONS.some(install => install === action)
}

const HOST_ACTIONS: ReadonlySet<string> = new Set<Action>(['provision', 'stop', 'start', 'restart', 'notify'])

/**
 * True if steps with this action change more of a host than files: they act on a service, or run the operator's
 * command.
 */
export function isHostAction(action: string): boolean {
  return HOST_ACTIONS.has(action)
}
