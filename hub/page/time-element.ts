import { html } from 'hono/html'

/** Markup in which every value is escaped. */
export type Html = ReturnType<typeof html>

/** An ISO 8601 time in a readable form, to the minute, in UTC. */
export function timeElement(time: string): Html {
  const utc = new Date(time).toISOString()
  return html`<time datetime="${utc}">${utc.slice(0, 16).replace('T', ' ')} UTC</time>`
}
