import { stringify } from 'yaml'
import type { OperatorFile } from './operator-files.ts'
import type { Part } from './part.ts'
import type { Project } from './project.ts'
import type { Sources } from './sources.ts'

/**
 * The lines of a workflow that deploys the sources on a real host: the README's workflow, for these sources. Each
 * setting takes its value from a secret of the same name.
 */
export function workflowLines(
  sources: Sources,
  files: readonly OperatorFile[],
  settings: readonly string[] = [],
): string[] {
  const { kind, slug } = sources
  const inputs = inputsOf(sources, files)
  const needsFiles = files.length > 0
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
    '    runs-on: [self-hosted, app-1] # the runner runs on the host that it deploys to',
    '    environment: production # has the secrets',
    '    timeout-minutes: 45',
    '    concurrency:',
    `      group: deploy-${slug}-app-1`,
    '      cancel-in-progress: false',
    '    steps:',
    ...(needsFiles ? CHECKOUT : []),
    `      - uses: OWNER/hub-deploy${kind === 'project' ? '/project' : ''}@v1 # replace OWNER; preferably pin a full commit SHA`,
    '        with:',
    ...Object.entries(inputs).map(([name, value]) => `          ${name}: ${value}`),
    ...(settings.length > 0 ? ['          settings: |'] : []),
    ...settings.map(name => `            ${name}=${secret(name)}`),
  ]
}

const CHECKOUT = ['      - uses: actions/checkout@v4', '        with:', '          persist-credentials: false']

function inputsOf(sources: Sources, files: readonly OperatorFile[]): Record<string, string> {
  return {
    'hub-url': 'https://hub.example.com # your hub',
    ...(sources.kind === 'project' ? projectInputs(sources) : partInputs(sources)),
    ...(sources.isSigned ? { 'plugin-secret-key': secret('PLUGIN_SECRET_KEY') } : {}),
    'project-root': '/srv/app # on the host',
    ...Object.fromEntries(files.map(({ input, path }) => [input, path])),
  }
}

function partInputs({ kind, slug }: Part): Record<string, string> {
  return {
    slug: stringify(slug).trim(),
    ...(kind === 'service' ? { kind } : {}),
    version: expression('inputs.version'),
    'api-key': secret('HUB_API_KEY'),
    'signing-secret': secret(secretName(slug, 'SIGNING_SECRET')),
  }
}

function projectInputs({ slug }: Project): Record<string, string> {
  return {
    'project-id': stringify(slug).trim(),
    version: expression('inputs.version'),
    devkey: secret('HUB_DEVKEY'),
    'deployment-credential': secret(secretName(slug, 'DEPLOYMENT_CREDENTIAL')),
    'signer-public-key': 'PUBLIC_KEY # from the publisher, not from the hub; it is not secret',
  }
}

/** Named as in the README: `GREETER_SIGNING_SECRET`. GitHub accepts letters, digits and `_`, but no digit first. */
function secretName(slug: string, purpose: string): string {
  const name = slug.toUpperCase().replace(/[^A-Z0-9]+/g, '_')
  return `${/^\d/.test(name) ? '_' : ''}${name}_${purpose}`
}

function secret(name: string): string {
  return expression(`secrets.${name}`)
}

function expression(text: string): string {
  return `\${{ ${text} }}`
}
