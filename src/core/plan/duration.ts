import { z } from 'zod/mini'

const SECONDS_PER_UNIT = { s: 1, m: 60, h: 3600 } as const
const DURATION_FORM = /^(\d{1,6})([smh])$/

/**
 * The form of a duration of `min` to `max` seconds as operators write it (`30`, `"30s"`, `"2m"`, `"1h"`). The parsed
 * value is in seconds.
 */
export function durationSchema(min: number, max: number) {
  const error = `must be ${min} to ${max} seconds, written like 30, "30s" or "2m"`
  const within = [z.gte(min, { error }), z.lte(max, { error })] as const
  const written = z.string().check(z.regex(DURATION_FORM, { error }))
  return z.union(
    [z.int({ error }).check(...within), z.pipe(z.pipe(written, z.transform(secondsOf)), z.number().check(...within))],
    { error },
  )
}

function secondsOf(text: string): number {
  const [, count, unit] = DURATION_FORM.exec(text) ?? []
  return Number(count) * SECONDS_PER_UNIT[unit as keyof typeof SECONDS_PER_UNIT]
}
