import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ListingId } from '../../hub/marketplace/catalogue.ts'
import type { Host } from '../workflow.ts'
import { unitOf } from './files.ts'

const SECURITY_PAGE = join(import.meta.dirname, '../../docs/security.md')
const RULE = /^polkit\.addRule\([\s\S]*?^\}\)$/m

/** The user of the runner in all pages. */
const RUNNER_USER = 'runner'

/**
 * Returns the commands that prepare a host, as a root shell takes them: the runner's user, the project root and, for a
 * service, its unit and the polkit rule of docs/security.md for this unit. `url` is where the runner registers.
 */
export function hostCommands(part: ListingId, host: Host, url: string): string[] {
  const user = RUNNER_USER
  return [
    `id ${user} >/dev/null 2>&1 || sudo useradd --create-home ${user}`,
    `sudo install -d -o ${user} -g ${user} -m 755 ${host.root}`,
    ...(part.kind === 'service' ? unitCommands(part.slug, host.root) : []),
    `sudo -iu ${user} # then download the runner to ~/actions-runner, as GitHub shows under Settings → Actions → Runners`,
    `./config.sh --url ${url} --token TOKEN --labels ${host.name} # as ${user}, in ~/actions-runner; then type exit`,
    `sudo sh -c 'cd ~${user}/actions-runner && ./svc.sh install ${user} && ./svc.sh start'`,
  ]
}

function unitCommands(slug: string, root: string): string[] {
  const unit = unitOf(slug)
  const folder = `${root}/extensions/${slug}`
  return [
    ...fileCommand(`/etc/systemd/system/${unit}`, [
      '[Unit]',
      `Description=${slug}`,
      '[Service]',
      `WorkingDirectory=-${folder}`,
      `ExecStart=${folder}/run.sh`,
      '# Its own user, which cannot change the files of the deployment, and gains no rights.',
      'DynamicUser=yes',
      'NoNewPrivileges=yes',
      'Restart=on-failure',
      '[Install]',
      'WantedBy=multi-user.target',
    ]),
    `sudo systemctl daemon-reload && sudo systemctl enable ${unit} # correct ExecStart if your program is not run.sh`,
    ...fileCommand(`/etc/polkit-1/rules.d/50-hub-deploy-${slug}.rules`, polkitRule(unit).split('\n')),
  ]
}

/** The rule of docs/security.md, which a test runs under a real polkit, for this unit. */
function polkitRule(unit: string): string {
  const rule = RULE.exec(readFileSync(SECURITY_PAGE, 'utf8'))?.[0]
  if (rule === undefined) throw new Error(`${SECURITY_PAGE} has no polkit rule`)
  return rule.replace(/'greeter\.service'/, `'${unit}'`).replace(/'runner'/, `'${RUNNER_USER}'`)
}

function fileCommand(path: string, lines: readonly string[]): string[] {
  return [`sudo tee ${path} >/dev/null <<'END'`, ...lines, 'END']
}
