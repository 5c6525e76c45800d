import { z } from 'zod'
import type { FleetFilter } from '../marketplace/fleet-view.ts'

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
export function pageLink({ text, onlyAttention, page }: FleetFilter): string {
  const query = new URLSearchParams()
  if (text !== '') query.set('q', text)
  if (onlyAttention) query.set('attention', '1')
  if (page > 1) query.set('page', String(page))
  return `?${query}`
}
