import { createHash } from 'node:crypto'
import { html, raw } from 'hono/html'
import type { Listing } from '../marketplace/catalogue.ts'
import type { FleetView } from '../marketplace/fleet-view.ts'
import { catalogueSection } from './catalogue-section.ts'
import { fleetCounts, number } from './fleet-counts.ts'
import { filterForm, pageLinks } from './fleet-filter.ts'
import { fleetTable } from './fleet-table.ts'
import { type ProjectsContent, projectSections } from './project-sections.ts'
import { STYLE } from './style.ts'
import type { Html } from './time-element.ts'

/** Allows the page its style sheet, empty icon and filter, and nothing else: no scripts or frames, no other site. */
export const FLEET_PAGE_POLICY = [
  "default-src 'none'",
  `style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'`,
  'img-src data:',
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join('; ')

export interface FleetPageContent extends ProjectsContent {
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
