import { stringify } from 'yaml'
import type { OperatorFile } from './operator-files.ts'
import type { Part } from './part.ts'

/** The lines of a workflow that deploys the part on a real host. */
export function workflowLines({ kind, slug, isSigned }: Part, files: readonly OperatorFile[]): string[] {
  const inputs = {
    'hub-url': 'https://hub.example.com # your hub',
    slug: stringify(slug).trim(),
    ...(kind === 'service' ? { kind } : {}),
    'api-key': secret('HUB_API_KEY'),
    'signing-secret': secret('HUB_SIGNING_SECRET'),
    ...(isSigned ? { 'plugin-secret-key': secret('PLUGIN_SECRET_KEY') } : {}),
    'project-root': '/srv/app # on the host',
    ...Object.fromEntries(files.map(({ input, path }) => [input, path])),
  }
  return [
    `name: Deploy ${slug}`,
    'on: workflow_dispatch',
    'permissions:',
    '  contents: read',
    'jobs:',
    '  deploy:',
    '    runs-on: [self-hosted, app-1] # the runner on the host itself',
    '    concurrency: {group: deploy-app-1, cancel-in-progress: false}',
    '    steps:',
    ...(files.length > 0 ? ['      - uses: actions/checkout@v4'] : []),
    '      - uses: OWNER/hub-deploy@v1',
    '        with:',
    ...Object.entries(inputs).map(([name, value]) => `          ${name}: ${value}`),
  ]
}

function secret(name: string): string {
  return `\${{ secrets.${name} }}`
}
