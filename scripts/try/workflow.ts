import { stringify } from 'yaml'
import type { OperatorFile } from './operator-files.ts'
import type { Part } from './part.ts'

/**
 * The lines of a workflow that deploys the part on a real host: the README's workflow, for this part. Each setting
 * takes its value from a secret of the same name.
 */
export function workflowLines(
  { kind, slug, isSigned }: Part,
  files: readonly OperatorFile[],
  settings: readonly string[] = [],
): string[] {
  const inputs = {
    'hub-url': 'https://hub.example.com # your hub',
    slug: stringify(slug).trim(),
    ...(kind === 'service' ? { kind } : {}),
    version: expression('inputs.version'),
    'api-key': secret('HUB_API_KEY'),
    'signing-secret': secret(signingSecretName(slug)),
    ...(isSigned ? { 'plugin-secret-key': secret('PLUGIN_SECRET_KEY') } : {}),
    'project-root': '/srv/app # on the host',
    ...Object.fromEntries(files.map(({ input, path }) => [input, path])),
  }
  return [
    `name: Deploy ${slug}`,
    'on:',
    '  workflow_dispatch:',
    '    inputs:',
    '      version:',
    '        description: Version to install, or latest',
    '        default: latest',
    'permissions:',
    '  contents: read',
    'jobs:',
    '  deploy:',
    '    runs-on: [self-hosted, app-1] # the runner runs on the host that it deploys to',
    '    environment: production # has the secrets',
    '    timeout-minutes: 45',
    '    concurrency:',
    `      group: deploy-${slug}-app-1`,
    '      cancel-in-progress: false',
    '    steps:',
    ...(files.length > 0 ? CHECKOUT : []),
    '      - uses: OWNER/hub-deploy@v1 # replace OWNER; preferably pin a full commit SHA',
    '        with:',
    ...Object.entries(inputs).map(([name, value]) => `          ${name}: ${value}`),
    ...(settings.length > 0 ? ['          settings: |'] : []),
    ...settings.map(name => `            ${name}=${secret(name)}`),
  ]
}

const CHECKOUT = ['      - uses: actions/checkout@v4', '        with:', '          persist-credentials: false']

/** Named as in the README: `GREETER_SIGNING_SECRET`. GitHub accepts letters, digits and `_`, and no digit first. */
function signingSecretName(slug: string): string {
  const name = slug.toUpperCase().replace(/[^A-Z0-9]+/g, '_')
  return `${/^\d/.test(name) ? '_' : ''}${name}_SIGNING_SECRET`
}

function secret(name: string): string {
  return expression(`secrets.${name}`)
}

function expression(text: string): string {
  return `\${{ ${text} }}`
}
