import { ConfigError } from '../errors.ts'
import { listNames } from '../foreign-text.ts'
import type { HostConfig } from './host-config.ts'
import { installedId, isInstallStep } from './plan-binding.ts'
import type { PlanStep } from './plan-step.ts'

/** The steps and removals by which a project acts on services of this host. */
export interface ServiceUse {
  /** The plan's steps without those that are skipped. */
  readonly steps: readonly PlanStep[]
  /** The ids of parts that this version removes, whose services are stopped. */
  readonly removedIds: readonly string[]
}

/**
 * Refuses a systemd or Docker template that is only `{id}` (in systemd, perhaps with a suffix such as `.service`), if
 * the project uses it for an id without its own row under `plugins`. The project's publisher would choose the service,
 * and could choose the id `sshd`. Throws ConfigError `invalid_host_config`.
 */
export function verifyServiceNames(config: HostConfig | undefined, use: ServiceUse): void {
  const template = config && bareTemplateOf(config)
  if (config === undefined || template === undefined) return
  const open = new Set(idsUsing(config, use).filter(id => !config.plugins.has(id)))
  if (open.size === 0) return
  const { key, value, granted } = template
  const ids = `${open.size === 1 ? 'id' : 'ids'} ${listNames([...open])}`
  throw new ConfigError(
    'invalid_host_config',
    `${config.file} names services by ${key} "${value}", so the publisher of this project, who chooses the ${ids}, could start or stop any service of this host: set ${key} to a name with your own prefix, such as "app-${value}", or add plugins.<id> with its ${granted} ${open.size === 1 ? 'for this id' : 'for each of these ids'}. Nothing was installed.`,
  )
}

interface BareTemplate {
  readonly key: string
  readonly value: string
  /** The key below `plugins.<id>` that names the service of one id. */
  readonly granted: string
}

function bareTemplateOf({ supervisor, systemd, docker }: HostConfig): BareTemplate | undefined {
  if (supervisor === 'systemd' && /^\{id\}(?:\.[a-z]+)?$/.test(systemd.unit))
    return { key: 'systemd.unit', value: systemd.unit, granted: 'unit' }
  if (supervisor === 'docker' && docker.container === '{id}')
    return { key: 'docker.container', value: docker.container, granted: 'container' }
  return undefined
}

/** Returns the ids of the services that steps and removals use, excluding the project's unit. */
function idsUsing(config: HostConfig, { steps, removedIds }: ServiceUse): string[] {
  const installedIds = steps.filter(isInstallStep).map(installedId)
  const hasProjectUnit = config.supervisor === 'systemd' && config.systemd.projectUnit !== undefined
  const used = steps.flatMap(step => {
    switch (step.action) {
      case 'start':
      case 'stop':
      case 'restart':
      case 'healthcheck':
        return step.plugin === undefined ? (hasProjectUnit ? [] : installedIds) : [step.plugin]
      default:
        return []
    }
  })
  return [...used, ...removedIds]
}
