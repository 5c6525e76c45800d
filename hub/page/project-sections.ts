import { html } from 'hono/html'
import type { Project } from '../project/catalogue.ts'
import type { StoredProjectReport } from '../project/reports.ts'
import { type Html, timeElement } from './time-element.ts'

/** The part of the fleet page about projects; empty if there are none. Their reports name no host (contract 2.2). */
export function projectSections(
  projects: readonly Project[],
  deployments: readonly StoredProjectReport[],
): Html | string {
  if (projects.length === 0 && deployments.length === 0) return ''
  return html`<h2>Projects</h2>
${projects.length === 0 ? html`<p class="soft">No project has been published yet.</p>` : projectTable(projects)}
<h2>Project deployments</h2>
${deployments.length === 0 ? html`<p class="soft">No project deployment has been reported yet.</p>` : deploymentTable(deployments)}`
}

function projectTable(projects: readonly Project[]): Html {
  return html`<div class="scroll"><table>
<thead><tr><th scope="col">Project</th><th scope="col">Latest</th><th scope="col">Versions</th></tr></thead>
<tbody>${projects.map(projectRow)}</tbody>
</table></div>`
}

function projectRow({ project_id, name, versions }: Project): Html {
  const latest = versions.find(({ revoked_at }) => revoked_at === null)?.version ?? 'none'
  const all = versions.map(({ version, revoked_at }) => (revoked_at === null ? version : `${version} (revoked)`))
  return html`<tr><th scope="row">${name ?? project_id}${name === null ? '' : html`<small>${project_id}</small>`}</th><td><code>${latest}</code></td><td>${all.join(', ')}</td></tr>
`
}

function deploymentTable(deployments: readonly StoredProjectReport[]): Html {
  return html`<div class="scroll"><table>
<thead><tr><th scope="col">Project</th><th scope="col">Version</th><th scope="col">Plugins</th><th scope="col">Completed</th></tr></thead>
<tbody>${deployments.map(deploymentRow)}</tbody>
</table></div>`
}

function deploymentRow({
  project_id,
  deployment_id,
  version,
  status,
  plugins,
  completed_at,
}: StoredProjectReport): Html {
  return html`<tr><th scope="row">${project_id}<small>${deployment_id}</small></th>
<td><code>${version}</code> <span class="status ${status}">${status.replace('_', ' ')}</span></td>
<td>${plugins.map(({ id, version }) => html`<code>${version === '' ? id : `${id}@${version}`}</code> `)}</td><td>${timeElement(completed_at)}</td></tr>
`
}
