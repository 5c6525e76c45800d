import type { Kind } from '../identifiers.ts'
import type { HostConfig } from './host-config.ts'
import { type Plan, parsePlan } from './plan.ts'
import { MAX_HEALTHCHECK_SECONDS } from './step.ts'

/** The plan for a plugin or service for which the operator has written no plan. */
export interface DefaultPlan {
  /** As an operator could have written it. No line is indented, because a log may lose the indentation. */
  readonly text: string
  /** One sentence that says what the plan does, and why. */
  readonly reason: string
  readonly plan: Plan
}

const DEFAULT_PLAN_NAME = 'the default plan'

const DEFAULT_CHECK_SECONDS = 60
/** The time that a check may need in addition to its `stable_for`. */
const SPARE_CHECK_SECONDS = 30

/**
 * Builds the plan for `slug`, which becomes the id. The plan installs the part and retains the version that it
 * replaces. If the host config has a supervisor other than `none`, the plan then restarts the service and checks its
 * health. Otherwise, if the host config has a health check for this id, the plan runs that check. `parsePlan` reads the
 * steps from `text`.
 */
export function buildDefaultPlan(
  artifact: { kind: Kind; slug: string },
  hostConfig: HostConfig | undefined,
): DefaultPlan {
  const text = [...planHead(artifact), ...stepsOf(artifact, hostConfig)].map(line => `${line}\n`).join('')
  return { text, reason: whyDefaultPlan(artifact, hostConfig), plan: parsePlan(text, DEFAULT_PLAN_NAME) }
}

/** Quotes the slug, which may look like a number to YAML. */
function planHead({ slug }: { slug: string }): string[] {
  return ['format_version: "1"', `project_id: "${slug}"`, 'version: 1.0.0', 'steps:']
}

function stepsOf({ kind, slug }: { kind: Kind; slug: string }, hostConfig: HostConfig | undefined): string[] {
  const install = kind === 'plugin' ? `install_plugin, plugin: "${slug}"` : `install_extension, extension: "${slug}"`
  const known = knownOf(slug, hostConfig)
  const before = known.isSupervised ? 'up' : 'files'
  const of = known.isProjectWide ? '' : `, plugin: "${slug}"`
  return [
    '- {id: prepare, action: prepare}',
    `- {id: files, action: ${install}, snapshot: true, depends_on: [prepare]}`,
    ...(known.isSupervised ? [`- {id: up, action: restart${of}, depends_on: [files]}`] : []),
    ...(known.isSupervised || known.hasCheck
      ? [`- {id: healthy, action: healthcheck${of}, timeout: ${known.seconds}s, depends_on: [${before}]}`]
      : []),
  ]
}

function knownOf(id: string, hostConfig: HostConfig | undefined) {
  const check = hostConfig?.plugins.get(id)?.healthcheck
  const stable = (check?.stableForSeconds ?? 0) + SPARE_CHECK_SECONDS
  return {
    isSupervised: hostConfig?.supervisor !== undefined && hostConfig.supervisor !== 'none',
    hasCheck: check !== undefined,
    // The project's unit runs every part that has no unit of its own.
    isProjectWide: hasProjectUnit(hostConfig) && hostConfig?.plugins.get(id)?.unit === undefined,
    seconds: Math.min(Math.max(DEFAULT_CHECK_SECONDS, stable), MAX_HEALTHCHECK_SECONDS),
  }
}

function hasProjectUnit(hostConfig: HostConfig | undefined): boolean {
  return hostConfig?.supervisor === 'systemd' && hostConfig.systemd.projectUnit !== undefined
}

function whyDefaultPlan({ kind, slug }: { kind: Kind; slug: string }, hostConfig: HostConfig | undefined): string {
  const start = `install-plan names no file, so this is the default plan: it installs the ${kind} under its slug`
  if (hostConfig === undefined) return `${start}, and does nothing else, because host-config names no file.`
  const { file, supervisor } = hostConfig
  const { isSupervised, hasCheck, isProjectWide } = knownOf(slug, hostConfig)
  const service = isProjectWide ? hostConfig.systemd.projectUnit : 'its service'
  const check = `plugins.${slug}.healthcheck`
  if (isSupervised)
    return `${start}, then restarts ${service} and checks its health, because ${file} has supervisor: ${supervisor}${hasCheck ? ` and ${check}` : ''}.`
  if (hasCheck) return `${start}, then checks its health, because ${file} has ${check} but no supervisor.`
  return `${start}, and does nothing else, because ${file} has neither a supervisor nor ${check}.`
}
