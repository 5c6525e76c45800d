import { stringify } from 'yaml'
import type { Part, Project, Sources } from './try/sources.ts'

/** A file in the repository of a workflow, named by one of the action's inputs. */
export interface NamedFile {
  readonly input: string
  readonly path: string
}

/** Where a workflow finds the action and the hub, and which hosts it deploys to. */
export interface Place {
  /** The repository that has the action, `OWNER/NAME`. */
  readonly repository: string
  /** What follows `@`, a comment included. */
  readonly ref: string
  readonly hubUrl: string
  /** At least one. With several, each becomes a leg of a matrix. */
  readonly hosts: readonly Host[]
}

export interface Host {
  /** Also the label of its runner. */
  readonly name: string
  /** Its project root. */
  readonly root: string
}

/** What a workflow deploys: only these facts of the sources appear in it. */
export type Deployable = Pick<Part, 'kind' | 'slug' | 'isSigned'> | Pick<Project, 'kind' | 'slug' | 'isSigned'>

/** The README's names, for the reader to replace. */
const EXAMPLE: Place = {
  repository: 'OWNER/hub-deploy',
  ref: 'v1 # replace OWNER; preferably pin a full commit SHA',
  hubUrl: 'https://hub.example.com # your hub',
  hosts: [{ name: 'app-1', root: '/srv/app # on the host' }],
}

const CHECKOUT = [
  '      - uses: actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2',
  '        with:',
  '          persist-credentials: false',
]

/**
 * The lines of a workflow that deploys the sources on real hosts: the README's workflow, for these sources. Each
 * setting takes its value from a secret of the same name.
 */
export function workflowLines(
  deployed: Deployable,
  files: readonly NamedFile[],
  settings: readonly string[] = [],
  place: Place = EXAMPLE,
): string[] {
  const { kind, slug } = deployed
  const needsFiles = files.length > 0
  const host = hostIn(place.hosts)
  return [
    `name: Deploy ${slug}`,
    'on:',
    '  workflow_dispatch:',
    '    inputs:',
    '      version:',
    '        description: Version to install, or latest',
    '        default: latest',
    ...(kind === 'project' && !needsFiles ? ['permissions: {}'] : ['permissions:', '  contents: read']),
    'jobs:',
    '  deploy:',
    ...matrixLines(place.hosts),
    `    runs-on: [self-hosted, ${host.label}] # the runner runs on the host that it deploys to`,
    '    environment: production # has the secrets',
    '    timeout-minutes: 45',
    '    concurrency:',
    `      group: deploy-${slug}-${host.name}`,
    '      cancel-in-progress: false',
    '    steps:',
    ...(needsFiles ? CHECKOUT : []),
    `      - uses: ${place.repository}${kind === 'project' ? '/project' : ''}@${place.ref}`,
    '        with:',
    ...Object.entries(inputsOf(deployed, files, { ...place, host })).map(
      ([name, value]) => `          ${name}: ${value}`,
    ),
    ...(settings.length > 0 ? ['          settings: |'] : []),
    ...settings.map(name => `            ${name}=${secret(name)}`),
  ]
}

/** The name of a leg's host, in a workflow with several hosts. */
export const MATRIX_HOST = expression('matrix.host')

/** The only host; of several, the one of a leg. */
function hostIn(hosts: readonly Host[]): Host & { readonly label: string } {
  const [only, ...others] = hosts
  if (only !== undefined && others.length === 0) return { ...only, label: stringify(only.name).trim() }
  return { name: MATRIX_HOST, label: `'${MATRIX_HOST}'`, root: expression('matrix.root') }
}

function matrixLines(hosts: readonly Host[]): string[] {
  if (hosts.length === 1) return []
  return [
    '    strategy:',
    '      max-parallel: 1 # one host at a time; the first that fails keeps the others as they are',
    '      matrix:',
    '        include:',
    ...hosts.map(({ name, root }) => `          - {host: ${stringify(name).trim()}, root: ${stringify(root).trim()}}`),
  ]
}

function inputsOf(
  deployed: Deployable,
  files: readonly NamedFile[],
  { hubUrl, host }: { readonly hubUrl: string; readonly host: Host },
): Record<string, string> {
  return {
    'hub-url': hubUrl,
    ...(deployed.kind === 'project' ? projectInputs(deployed) : partInputs(deployed)),
    ...(deployed.isSigned ? { 'plugin-secret-key': secret('PLUGIN_SECRET_KEY') } : {}),
    'project-root': host.root,
    'host-id': `${host.name} # the same name in every workflow for this host`,
    ...Object.fromEntries(files.map(({ input, path }) => [input, path])),
  }
}

function partInputs({ kind, slug }: Pick<Sources, 'kind' | 'slug'>): Record<string, string> {
  return {
    slug: stringify(slug).trim(),
    ...(kind === 'service' ? { kind } : {}),
    version: expression('inputs.version'),
    'api-key': secret('HUB_API_KEY'),
    'signing-secret': secret(secretName(slug, 'SIGNING_SECRET')),
  }
}

function projectInputs({ slug }: Pick<Project, 'slug'>): Record<string, string> {
  return {
    'project-id': stringify(slug).trim(),
    version: expression('inputs.version'),
    devkey: secret('HUB_DEVKEY'),
    'deployment-credential': secret(secretName(slug, 'DEPLOYMENT_CREDENTIAL')),
    'signer-public-key': 'PUBLIC_KEY # from the publisher, not from the hub; it is not secret',
  }
}

/** Named as in the README: `GREETER_SIGNING_SECRET`. GitHub accepts letters, digits and `_`, but no digit first. */
export function secretName(slug: string, purpose: string): string {
  const name = slug.toUpperCase().replace(/[^A-Z0-9]+/g, '_')
  return `${/^\d/.test(name) ? '_' : ''}${name}_${purpose}`
}

function secret(name: string): string {
  return expression(`secrets.${name}`)
}

function expression(text: string): string {
  return `\${{ ${text} }}`
}
