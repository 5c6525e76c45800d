import type { ListingId } from '../../hub/marketplace/catalogue.ts'
import { buildDefaultPlan } from '../../src/core/plan/default-plan.ts'
import { parseHostConfig } from '../../src/core/plan/host-config.ts'
import { type Host, MATRIX_HOST, workflowLines } from '../workflow.ts'
import type { ActionSource } from './repository.ts'
import type { Wish } from './wish.ts'

/** A file for the operator's repository. */
export interface NewFile {
  /** Relative to the repository. */
  readonly path: string
  readonly text: string
  /** True if one file serves several plugins and services, so that an existing one is kept. */
  readonly isShared: boolean
}

/** Returns all files: the workflow, the plan, the config of each host, and what actionlint must know. */
export function buildFiles(wish: Wish, source: ActionSource): NewFile[] {
  const { part, hosts } = wish
  const [first, ...others] = hosts
  const plan = `plans/${part.slug}.yaml`
  const files = [
    { input: 'install-plan', path: plan },
    { input: 'host-config', path: hostConfigPath(others.length === 0 ? first.name : MATRIX_HOST) },
  ]
  const place = { ...source, ref: source.commit, hubUrl: wish.hubUrl, hosts }
  const workflow = workflowLines({ ...part, isSigned: false }, files, [], place)
  return [
    { path: `.github/workflows/deploy-${part.slug}.yml`, text: linesOf(workflow), isShared: false },
    { path: plan, text: planText(part, source), isShared: false },
    ...hosts.map(({ name }) => ({
      path: hostConfigPath(name),
      text: hostConfigText(part, source),
      isShared: true,
    })),
    { path: '.github/actionlint.yaml', text: labelsText(hosts), isShared: true },
  ]
}

function hostConfigPath(host: string): string {
  return `hosts/${host}.yaml`
}

/** The default plan for this host config, as a file that the operator can change. */
function planText(part: ListingId, source: ActionSource): string {
  const config = parseHostConfig(hostConfigText(part, source), 'the host config')
  const { text } = buildDefaultPlan(part, config)
  return `${schemaLine('install-plan', source)}# The steps of a deployment of ${part.slug}.\n${text}`
}

function hostConfigText({ kind, slug }: ListingId, source: ActionSource): string {
  return linesOf([
    `${schemaLine('host-config', source)}# How this host runs its services. It belongs in this repository or on the host, never in the artifact.`,
    'version: 1',
    ...(kind === 'service' ? serviceLines(slug) : PLUGIN_LINES),
  ])
}

function serviceLines(slug: string): string[] {
  return [
    'supervisor: systemd',
    'plugins: # services too',
    `  ${JSON.stringify(slug)}:`,
    `    unit: ${JSON.stringify(unitOf(slug))}`,
    '    # So that a new version must also answer, not only run:',
    '    # healthcheck: {http: "http://127.0.0.1:8080/health", status: 200, stable_for: 3s}',
  ]
}

/** Which unit loads a plugin is not known here. */
const PLUGIN_LINES = [
  '# If a unit must restart to load a plugin, replace the next line by these two, and add a restart step to the plan:',
  '# supervisor: systemd',
  '# systemd: {project_unit: app.service}',
  'supervisor: none',
]

/** The systemd unit of a service. */
export function unitOf(slug: string): string {
  return `${slug}.service`
}

function labelsText(hosts: readonly Host[]): string {
  return linesOf([
    '# The labels of your runners, which actionlint cannot know.',
    'self-hosted-runner:',
    '  labels:',
    ...hosts.map(({ name }) => `    - ${JSON.stringify(name)}`),
  ])
}

function schemaLine(name: string, { repository, commit }: ActionSource): string {
  return `# yaml-language-server: $schema=https://raw.githubusercontent.com/${repository}/${commit}/schemas/${name}.schema.json\n`
}

function linesOf(lines: readonly string[]): string {
  return lines.map(line => `${line}\n`).join('')
}
