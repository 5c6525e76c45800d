import { html } from 'hono/html'
import { type Listing, latestVersion, type PublishedVersion, stateOf } from '../marketplace/catalogue.ts'
import { number } from './fleet-counts.ts'
import { shortened, visibleText } from './foreign-text.ts'
import { type Html, timeElement } from './time-element.ts'

const MAX_LISTINGS = 100
const MAX_VERSIONS = 8

/** The plugins and services that this hub has published, with their versions. */
export function catalogueSection(catalogue: readonly Listing[], now: number): Html {
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
export function versionList(versions: readonly (Html | string)[]): Html {
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
