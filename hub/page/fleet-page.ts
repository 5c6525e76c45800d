import { createHash } from 'node:crypto'
import { html, raw } from 'hono/html'
import { type Listing, latestVersion, type PublishedVersion, stateOf } from '../marketplace/catalogue.ts'
import type { FleetView } from '../marketplace/fleet.ts'
import type { Project } from '../project/catalogue.ts'
import type { ProjectState, StoredProjectReport } from '../project/reports.ts'
import { filterForm, fleetCounts, fleetTable, number, pageLinks } from './fleet-section.ts'
import { STYLE } from './style.ts'
import { type Html, shortened, shownOutcome, timeElement, visibleText } from './text.ts'

/** Allows the page its style sheet, empty icon and filter, and nothing else: no scripts or frames, no other site. */
export const FLEET_PAGE_POLICY = [
  "default-src 'none'",
  `style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'`,
  'img-src data:',
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join('; ')

interface FleetPageContent extends ProjectsContent {
  readonly fleet: FleetView
  readonly catalogue: readonly Listing[]
  /** Milliseconds since 1970. The page shows the age of recent events at this time. */
  readonly now: number
}

/** A page with the running versions of each host and the published versions. Escapes every value. */
export function buildFleetPage(content: FleetPageContent): Html {
  const { fleet, catalogue, now } = content
  const attention = fleet.counts.hostsThatNeedAttention
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${attention === 0 ? 'Fleet' : `(${number(attention)}) Fleet`}</title>
<link rel="icon" href="data:,">
<style>${raw(STYLE)}</style>
</head>
<body>
<header><h1>Fleet</h1><p class="soft">A reference hub, for trials, tests and small private use</p></header>
<main>
${fleetCounts(fleet.counts)}
${fleet.counts.hosts === 0 ? '' : filterForm(fleet)}
${fleetTable({ view: fleet, now })}
${pageLinks(fleet)}
${catalogueSection(catalogue, now)}
${projectSections(content)}
</main>
</body>
</html>`
}

const MAX_PROJECTS = 100
const MAX_PLUGINS = 12

interface ProjectsContent {
  readonly projects: readonly Project[]
  /** The state of a project according to its reports. */
  readonly stateOf: (projectId: string) => ProjectState
  /** The latest deployments, newest first. */
  readonly deployments: readonly StoredProjectReport[]
  readonly now: number
}

/** The part of the page about projects; empty if there are none. Project reports name no host (contract 2.2). */
function projectSections(content: ProjectsContent): Html | string {
  const { projects, deployments } = content
  if (projects.length === 0 && deployments.length === 0) return ''
  return html`<h2>Projects</h2>
${projects.length === 0 ? html`<div class="card empty">No project has been published yet.</div>` : projectTable(content)}
<h2>Latest project deployments</h2>
${deployments.length === 0 ? html`<div class="card empty">No project deployment has been reported yet.</div>` : deploymentTable(content)}`
}

function projectTable({ projects, stateOf, now }: ProjectsContent): Html {
  const more = projects.length - MAX_PROJECTS
  return html`<div class="card"><table class="fleet">
<caption class="hidden">Projects, and the last deployment of each</caption>
<thead><tr><th scope="col" class="sign"><span class="hidden">Last deployment</span></th><th scope="col">Project</th><th scope="col" class="what">Published</th><th scope="col" class="runs">Last deployed</th><th scope="col" class="when"></th></tr></thead>
${projects.slice(0, MAX_PROJECTS).map(project => projectRow({ ...project, ...stateOf(project.project_id) }, now))}</table></div>
${more > 0 ? html`<p class="soft">and ${number(more)} more: see <code>npm run hub -- project list</code></p>` : ''}`
}

function projectRow({ project_id, name, versions, newest, success }: Project & ProjectState, now: number): Html {
  const all = versions.map(({ version, revoked_at }) =>
    revoked_at === null ? shortened(version) : html`${shortened(version)} (revoked)`,
  )
  const outcome = newest === undefined ? undefined : shownOutcome(newest.status)
  const failed = newest === undefined || newest.status === 'success' ? undefined : newest
  return html`<tbody class="${outcome?.className ?? ''}${failed === undefined ? '' : ' tinted'}"><tr>
<td class="sign">${outcome === undefined ? '' : html`<i aria-hidden="true">${outcome.sign}</i><span class="hidden">the last deployment ${outcome.words}</span>`}</td>
<th scope="row" class="host"><bdi>${visibleText(name ?? project_id)}</bdi>${name === null ? '' : html`<span class="note">${project_id}</span>`}</th>
<td class="what versions" data-label="published">${all.length === 0 ? 'none' : versionList(all)}</td>
${success === undefined ? html`<td class="runs soft">no success yet</td><td class="when"></td>` : html`<td class="runs" data-label="deployed"><span class="version">${shortened(success.version)}</span></td><td class="when">${timeElement(success.completed_at, now)}</td>`}
</tr>${failed === undefined ? '' : html`<tr class="attempt"><td class="sign"></td><td colspan="4"><span class="words">${shortened(failed.version)} ${shownOutcome(failed.status).words}</span> ${timeElement(failed.completed_at, now)}</td></tr>`}</tbody>
`
}

function deploymentTable({ projects, deployments, now }: ProjectsContent): Html {
  const names = new Map(projects.map(({ project_id, name }) => [project_id, name]))
  return html`<div class="card"><table class="fleet">
<caption class="hidden">The latest deployments of projects</caption>
<thead><tr><th scope="col" class="sign"><span class="hidden">Outcome</span></th><th scope="col">Project</th><th scope="col" class="what">Version</th><th scope="col" class="runs">Plugins</th><th scope="col" class="when">Completed</th></tr></thead>
${deployments.map(deployment => deploymentRow(deployment, { name: names.get(deployment.project_id), now }))}</table></div>`
}

interface Shown {
  /** The project's name; null or undefined if the project was not created on this hub. */
  readonly name: string | null | undefined
  readonly now: number
}

function deploymentRow(deployment: StoredProjectReport, { name, now }: Shown): Html {
  const { project_id, deployment_id, version, status, plugins, completed_at } = deployment
  const { className, sign, words } = shownOutcome(status)
  const parts = plugins.slice(0, MAX_PLUGINS).map(({ id, version }, index) => {
    const separator = index === 0 ? '' : ', '
    return version === '' ? html`${separator}${id}` : html`${separator}${id} ${shortened(version)}`
  })
  const more = plugins.length > MAX_PLUGINS ? ` and ${plugins.length - MAX_PLUGINS} more` : ''
  return html`<tbody class="${className}"><tr><td class="sign"><i aria-hidden="true">${sign}</i></td>
<th scope="row" class="host"><bdi>${visibleText(name ?? project_id)}</bdi><span class="note"><abbr title="${deployment_id}">${deployment_id.slice(0, 8)}</abbr></span></th>
<td class="what"><span class="version">${shortened(version)}</span> <span class="words">${words}</span></td>
<td class="runs versions">${parts}${more}</td><td class="when">${timeElement(completed_at, now)}</td></tr></tbody>
`
}

const MAX_LISTINGS = 100
const MAX_VERSIONS = 8

/** The plugins and services that this hub has published, with their versions. */
function catalogueSection(catalogue: readonly Listing[], now: number): Html {
  if (catalogue.length === 0)
    return html`<h2>Catalogue</h2><div class="card empty">No plugin or service has been published yet.</div>`
  const more = catalogue.length - MAX_LISTINGS
  return html`<h2>Catalogue</h2><div class="card"><table>
<caption class="hidden">What this hub publishes</caption>
<thead><tr><th scope="col">Name</th><th scope="col">Latest</th><th scope="col">SHA-256</th><th scope="col">Versions</th></tr></thead>
${catalogue.slice(0, MAX_LISTINGS).map(listing => catalogueRow(listing, now))}</table></div>
${more > 0 ? html`<p class="soft">and ${number(more)} more: see <code>npm run hub -- versions</code></p>` : ''}`
}

/** The first eight versions, and the number of the others. */
function versionList(versions: readonly (Html | string)[]): Html {
  const more = versions.length - MAX_VERSIONS
  const shown = versions.slice(0, MAX_VERSIONS).map((version, index) => html`${index === 0 ? '' : ', '}${version}`)
  return html`${shown}${more > 0 ? ` and ${number(more)} more` : ''}`
}

function catalogueRow(listing: Listing, now: number): Html {
  const { kind, slug, name, versions } = listing
  const latest = versions.find(({ version }) => version === latestVersion(listing))
  return html`<tbody><tr><th scope="row"><bdi>${visibleText(name)}</bdi><span class="note">${kind}${name === slug ? '' : ` ${slug}`}</span></th>
<td data-label="latest">${latest === undefined ? 'none' : html`<span class="version">${shortened(latest.version)}</span><span class="note">${timeElement(latest.published_at, now)}</span>`}</td>
<td data-label="SHA-256">${latest === undefined ? '' : shortened(latest.sha256)}</td>
<td class="versions" data-label="versions">${versionList(versions.map(shownVersion))}</td></tr></tbody>
`
}

function shownVersion(version: PublishedVersion): Html | string {
  const state = stateOf(version)
  return state === 'served' ? shortened(version.version) : html`${shortened(version.version)} (${state})`
}
