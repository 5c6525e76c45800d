import { html } from 'hono/html'

/** Markup in which every value is escaped. */
export type Html = ReturnType<typeof html>

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS
/** Beyond this age, the date is clearer. */
const MAX_RELATIVE_DAYS = 30
/** The tolerance for a host's clock that is ahead. */
const CLOCK_TOLERANCE_MS = 5 * MINUTE_MS

/** An ISO 8601 time as its age at `now` (milliseconds since 1970) or as a date, with the time in UTC as its title. */
export function timeElement(time: string, now: number): Html {
  const utc = new Date(time).toISOString()
  const full = `${utc.slice(0, 19).replace('T', ' ')} UTC`
  return html`<time datetime="${utc}" title="${full}">${relativeTime(Date.parse(utc), now)}</time>`
}

function relativeTime(time: number, now: number): string {
  const age = now - time
  if (age < -CLOCK_TOLERANCE_MS) return `${dateOf(time)}, by a clock that is ahead`
  if (age < MINUTE_MS) return 'just now'
  if (age < HOUR_MS) return `${Math.floor(age / MINUTE_MS)} min ago`
  if (age < DAY_MS) return `${Math.floor(age / HOUR_MS)} h ago`
  const days = Math.floor(age / DAY_MS)
  if (days > MAX_RELATIVE_DAYS) return dateOf(time)
  return days === 1 ? '1 day ago' : `${days} days ago`
}

function dateOf(time: number): string {
  return new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeZone: 'UTC' }).format(time)
}
