import { html } from 'hono/html'
import type { FleetCounts, ListingCount } from '../marketplace/fleet-view.ts'
import { shortened } from './foreign-text.ts'
import { pageLink } from './page-link.ts'
import type { Html } from './time-element.ts'

/** The whole fleet in one line, and a line for each plugin or service with the number of hosts for each version. */
export function fleetCounts(counts: FleetCounts): Html {
  const { hosts, hostsThatNeedAttention, owners, unknown, listings, moreListings } = counts
  const parts = [html`<strong>${number(hosts)}</strong> ${hosts === 1 ? 'host' : 'hosts'}${ofOwners(owners)}`]
  if (hosts > 0) parts.push(attention(hostsThatNeedAttention))
  if (unknown > 0) parts.push(html`${number(unknown)} unknown ${unknown === 1 ? 'name' : 'names'}`)
  const [only] = listings
  if (listings.length === 1 && moreListings === 0 && only !== undefined) parts.push(versions(only))
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
  return html`<ul class="listings">${listings.map(listing => html`<li><b>${listing.slug}</b>: ${versions(listing)}</li>`)}
${moreListings > 0 ? html`<li>and ${number(moreListings)} more</li>` : ''}</ul>`
}

function versions({ versions, hosts }: ListingCount): Html {
  const counted = versions.map(({ version, hosts }) =>
    version === null ? html`${number(hosts)} without a success` : html`${number(hosts)} on ${shortened(version)}`,
  )
  const rest = hosts - versions.reduce((sum, version) => sum + version.hosts, 0)
  return joined(rest > 0 ? [...counted, html`${number(rest)} on other versions`] : counted, ', ')
}

function joined(parts: readonly Html[], separator: string): Html {
  return html`${parts.map((part, index) => html`${index === 0 ? '' : separator}${part}`)}`
}
