import { html } from 'hono/html'
import { type FleetView, ROWS_ON_A_PAGE } from '../marketplace/fleet-view.ts'
import { number } from './fleet-counts.ts'
import { pageLink } from './page-link.ts'
import type { Html } from './time-element.ts'

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
