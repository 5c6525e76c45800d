import { html } from 'hono/html'
import { z } from 'zod'
import {
  type FleetCounts,
  type FleetFilter,
  type FleetRow,
  type FleetView,
  type ListingCount,
  ROWS_ON_A_PAGE,
} from '../marketplace/fleet.ts'
import { firstSentence, type Html, shortened, shownOutcome, timeElement, visibleText } from './text.ts'

/** The whole fleet in one line, and a line for each plugin or service with the number of hosts for each version. */
export function fleetCounts(counts: FleetCounts): Html {
  const { hosts, hostsThatNeedAttention, owners, unknown, listings, moreListings } = counts
  const parts = [html`<strong>${number(hosts)}</strong> ${hosts === 1 ? 'host' : 'hosts'}${ofOwners(owners)}`]
  if (hosts > 0) parts.push(attention(hostsThatNeedAttention))
  if (unknown > 0) parts.push(html`${number(unknown)} unknown ${unknown === 1 ? 'name' : 'names'}`)
  const [only] = listings
  if (listings.length === 1 && moreListings === 0 && only !== undefined) parts.push(versionCounts(only))
  return html`<p class="counts">${joined(parts, ' · ')}</p>${listings.length > 1 ? listingLines(counts) : ''}`
}

/** The hub cannot know whether hosts of two owners are the same machine. */
function ofOwners(owners: number): Html {
  if (owners < 2) return html``
  return html` <abbr title="A machine that reports with the keys of several owners counts once for each owner">of ${number(owners)} owners</abbr>`
}

export function number(value: number): string {
  return value.toLocaleString('en')
}

function attention(hosts: number): Html {
  if (hosts === 0) return html`none needs attention`
  const href = pageLink({ text: '', onlyAttention: true, page: 1 })
  return html`<a href="${href}">${number(hosts)} ${hosts === 1 ? 'needs' : 'need'} attention</a>`
}

function listingLines({ listings, moreListings }: FleetCounts): Html {
  return html`<ul class="listings">${listings.map(listing => html`<li><b>${listing.slug}</b>: ${versionCounts(listing)}</li>`)}
${moreListings > 0 ? html`<li>and ${number(moreListings)} more</li>` : ''}</ul>`
}

function versionCounts({ versions, hosts }: ListingCount): Html {
  const counted = versions.map(({ version, hosts }) =>
    version === null ? html`${number(hosts)} without a success` : html`${number(hosts)} on ${shortened(version)}`,
  )
  const rest = hosts - versions.reduce((sum, version) => sum + version.hosts, 0)
  return joined(rest > 0 ? [...counted, html`${number(rest)} on other versions`] : counted, ', ')
}

function joined(parts: readonly Html[], separator: string): Html {
  return html`${parts.map((part, index) => html`${index === 0 ? '' : separator}${part}`)}`
}

/** A form without a script: the browser puts the fields into the address. */
export function filterForm({ filter }: FleetView): Html {
  const { text, onlyAttention } = filter
  const isFiltered = text !== '' || onlyAttention
  return html`<form method="get" role="search">
<input type="search" name="q" value="${text}" maxlength="200" placeholder="Host, name or version" aria-label="Filter by host, name or version" autocomplete="off" spellcheck="false">
<label><input type="checkbox" name="attention" value="1"${onlyAttention ? html` checked` : ''}> needs attention only</label>
<button>Filter</button>${
    isFiltered
      ? html`
<a href="?">Show all</a>`
      : ''
  }
</form>`
}

/** The position of the rows among all matches, and the links to the other pages. */
export function pageLinks({ filter, rows, matching, pages }: FleetView): Html | string {
  const isFiltered = filter.text !== '' || filter.onlyAttention
  if (rows.length === 0 || (pages === 1 && !isFiltered)) return ''
  const first = (filter.page - 1) * ROWS_ON_A_PAGE + 1
  const to = (page: number, words: Html) => html`<a href="${pageLink({ ...filter, page })}">${words}</a>`
  const range =
    pages === 1
      ? `${number(matching)} ${matching === 1 ? 'matches' : 'match'}`
      : `${number(first)}–${number(first + rows.length - 1)} of ${number(matching)}`
  return html`<nav aria-label="Pages"><span class="soft">${range}</span><span class="links">
${filter.page > 2 ? to(1, html`First`) : ''}
${filter.page > 1 ? to(filter.page - 1, html`<span aria-hidden="true">←</span> Previous`) : ''}
${filter.page < pages ? to(filter.page + 1, html`Next <span aria-hidden="true">→</span>`) : ''}
${filter.page < pages - 1 ? to(pages, html`Last`) : ''}
</span></nav>`
}

interface Table {
  readonly view: FleetView
  /** Milliseconds since 1970. */
  readonly now: number
}

/** The running version of each host, and below it the last attempt if that did not succeed. */
export function fleetTable({ view, now }: Table): Html {
  if (view.rows.length === 0) return html`<div class="card empty">${nothingShown(view)}</div>`
  const hasOwners = view.counts.owners > 1
  return html`<div class="card"><table class="fleet">
<caption class="hidden">What runs on each host</caption>
<thead><tr><th scope="col" class="sign"><span class="hidden">Last deployment</span></th><th scope="col">Host</th><th scope="col" class="what">Plugin or service</th><th scope="col" class="runs">Runs</th><th scope="col" class="when">Since</th></tr></thead>
${view.rows.map(row => hostRow(row, { now, hasOwners }))}</table></div>`
}

function nothingShown({ filter, counts }: FleetView): string {
  if (counts.hosts === 0) return 'No deployment of a plugin or service has been reported yet.'
  if (filter.onlyAttention && filter.text === '') return 'Nothing needs attention.'
  return 'No host matches this filter.'
}

interface Shown {
  readonly now: number
  /** True if the fleet has more than one owner, so that each row must name its owner. */
  readonly hasOwners: boolean
}

function hostRow(row: FleetRow, { now, hasOwners }: Shown): Html {
  const { className, sign, words } = shownOutcome(row.status)
  return html`<tbody class="${className}${row.status === 'success' ? '' : ' tinted'}"><tr>
<td class="sign"><i aria-hidden="true">${sign}</i><span class="hidden">the last deployment ${words}</span></td>
<th scope="row" class="host"><bdi>${visibleText(row.host_id)}</bdi>${hasOwners ? html`<span class="note">owner: <bdi>${visibleText(row.deployer_id)}</bdi></span>` : ''}</th>
<td class="what">${row.slug} ${row.kind === 'service' ? html`<span class="soft">service</span> ` : ''}${row.is_known ? '' : UNKNOWN}</td>
${running(row, now)}
</tr>${row.status === 'success' ? '' : attempt(row, now)}</tbody>
`
}

const UNKNOWN = html`<span class="tag" title="This hub never published this name: it is a typo, or belongs to another hub">? unknown to this hub</span>`

function running({ running_version, running_since, status }: FleetRow, now: number): Html {
  if (running_version === null || running_since === null)
    return html`<td class="runs soft">no success yet</td><td class="when"></td>`
  // A failed deployment may leave it unclear which version runs, and a report does not say.
  const before = status === 'failed' ? html`<span class="soft">last success </span>` : ''
  return html`<td class="runs" data-label="runs"><span class="version">${shortened(running_version)}</span></td><td class="when">${before}${timeElement(running_since, now)}</td>`
}

function attempt({ attempted_version, status, completed_at, error_message }: FleetRow, now: number): Html {
  const cause = error_message === null ? '' : firstSentence(error_message)
  return html`<tr class="attempt"><td class="sign"></td><td colspan="4"><span class="words">${shortened(attempted_version)} ${shownOutcome(status).words}</span> ${timeElement(completed_at, now)}${cause === '' ? '' : html`: <bdi>${cause}</bdi>`}</td></tr>`
}

const MAX_PAGE = 1_000_000

const querySchema = z.object({
  q: z.string().catch(''),
  attention: z
    .string()
    .optional()
    .transform(value => value === '1'),
  page: z.coerce.number().int().min(1).max(MAX_PAGE).catch(1),
})

/** Parses the filter in the address of a page. A field that cannot be read counts as absent. */
export function parseFleetFilter(query: Readonly<Record<string, string>>): FleetFilter {
  const { q, attention, page } = querySchema.parse(query)
  return { text: q, onlyAttention: attention, page }
}

/** A relative link from the fleet page to the same page with this filter. */
function pageLink({ text, onlyAttention, page }: FleetFilter): string {
  const query = new URLSearchParams()
  if (text !== '') query.set('q', text)
  if (onlyAttention) query.set('attention', '1')
  if (page > 1) query.set('page', String(page))
  return `?${query}`
}
