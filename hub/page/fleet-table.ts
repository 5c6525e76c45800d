import { html } from 'hono/html'
import type { FleetRow, FleetView } from '../marketplace/fleet-view.ts'
import { firstSentence, shortened, visibleText } from './foreign-text.ts'
import { shownOutcome } from './outcome.ts'
import { type Html, timeElement } from './time-element.ts'

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
