import { createHash } from 'node:crypto'
import { html, raw } from 'hono/html'
import { type Listing, latestVersion, stateOf } from '../marketplace/catalogue.ts'
import type { StoredReport } from '../marketplace/reports.ts'
import type { Project } from '../project/catalogue.ts'
import type { StoredProjectReport } from '../project/reports.ts'
import { projectSections } from './project-sections.ts'
import { type Html, timeElement } from './time-element.ts'

const STYLE = `
:root { color-scheme: light dark; --line: #8884; --soft: #888; --good: #1a7f37; --bad: #cf222e; --back: #b35900; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2.5rem 0 .5rem; }
p { margin: .25rem 0; } .soft { color: var(--soft); }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; } tr + tr, thead + tbody tr { border-top: 1px solid var(--line); }
th, td { text-align: left; vertical-align: top; padding: .55rem .9rem; white-space: nowrap; } thead th { font-weight: 600; }
tbody th { font-weight: 600; } small { color: var(--soft); font-weight: 400; display: block; }
code { font: .92em ui-monospace, monospace; }
.status { font-size: .8rem; font-weight: 600; } .success { color: var(--good); } .failed { color: var(--bad); }
.rolled_back { color: var(--back); } .error { white-space: normal; max-width: 24rem; }
`

/** Allows the page its own style sheet and nothing else: no scripts, frames or forms, nothing from other sites. */
export const FLEET_PAGE_POLICY = [
  "default-src 'none'",
  `style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'`,
  'img-src data:',
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

export interface FleetPageContent {
  readonly fleet: readonly StoredReport[]
  readonly catalogue: readonly Listing[]
  readonly projects: readonly Project[]
  /** Deployments of projects, newest first. */
  readonly deployments: readonly StoredProjectReport[]
}

/** A page that shows the versions on each host and what can be deployed. Every value in it is escaped. */
export function buildFleetPage({ fleet, catalogue, projects, deployments }: FleetPageContent): Html {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Fleet</title>
<link rel="icon" href="data:,">
<style>${raw(STYLE)}</style>
</head>
<body>
<h1>Fleet</h1>
<p class="soft">This is a reference hub, for trials, tests and small private use.</p>
<h2>Hosts</h2>
${fleet.length === 0 ? html`<p class="soft">No deployment has been reported yet.</p>` : fleetTable(fleet)}
<h2>Catalogue</h2>
${catalogue.length === 0 ? html`<p class="soft">Nothing has been published yet.</p>` : catalogueTable(catalogue)}
${projectSections(projects, deployments)}
</body>
</html>`
}

function fleetTable(fleet: readonly StoredReport[]): Html {
  const columns = [...new Set(fleet.map(listingKey))].sort()
  const rows = Map.groupBy(fleet, report => JSON.stringify([report.host_id, report.deployer_id]))
  return html`<div class="scroll"><table>
<thead><tr><th scope="col">Host</th>${columns.map(column => html`<th scope="col"><code>${column}</code></th>`)}</tr></thead>
<tbody>${[...rows.values()].map(reports => hostRow(reports, columns))}</tbody>
</table></div>`
}

function hostRow(reports: readonly StoredReport[], columns: readonly string[]): Html {
  const { host_id, deployer_id } = reports[0] as StoredReport
  const cells = columns.map(column => fleetCell(reports.find(report => listingKey(report) === column)))
  return html`<tr><th scope="row">${host_id}<small>${deployer_id}</small></th>${cells}</tr>
`
}

function fleetCell(report: StoredReport | undefined): Html {
  if (report === undefined) return html`<td class="soft">–</td>`
  const { version, status, completed_at, error_message } = report
  return html`<td><code>${version}</code> <span class="status ${status}">${status.replace('_', ' ')}</span>
<small>${timeElement(completed_at)}</small>${error_message === null ? '' : html`<small class="error">${error_message}</small>`}</td>`
}

function catalogueTable(catalogue: readonly Listing[]): Html {
  return html`<div class="scroll"><table>
<thead><tr><th scope="col">Name</th><th scope="col">Slug</th><th scope="col">Latest</th><th scope="col">Versions</th></tr></thead>
<tbody>${catalogue.map(catalogueRow)}</tbody>
</table></div>`
}

function catalogueRow(listing: Listing): Html {
  const versions = listing.versions.map(version =>
    stateOf(version) === 'served' ? version.version : `${version.version} (${stateOf(version)})`,
  )
  return html`<tr><th scope="row">${listing.name}<small>${listing.kind}</small></th><td><code>${listing.slug}</code></td>
<td><code>${latestVersion(listing) ?? 'none'}</code></td><td>${versions.join(', ')}</td></tr>
`
}

function listingKey({ kind, slug }: { kind: string; slug: string }): string {
  return `${kind}/${slug}`
}
