import { isAbsolute, normalize } from 'node:path'
import { z } from 'zod/mini'
import { hostIdSchema, idSchema, versionSchema } from '../../core/identifiers.ts'
import { MAX_PROJECT_ROOT_BYTES } from '../../core/limits.ts'

/** Leaves room for a part's name: the host records this URL and the name in one line of at most 2,000 characters. */
const MAX_BASE_URL_CHARS = 1800

const isBaseUrl = (text: string): boolean => {
  const url = URL.parse(text)
  return (
    url !== null &&
    (url.protocol === 'https:' || url.protocol === 'http:') &&
    url.username === '' &&
    url.password === '' &&
    url.search === '' &&
    url.hash === '' &&
    !/\p{Cc}/u.test(text)
  )
}

export const baseUrlSchema = z.pipe(
  z.string().check(
    z.refine(isBaseUrl, {
      error: 'must be an https URL without a user, password, query, fragment or control characters',
    }),
    z.maxLength(MAX_BASE_URL_CHARS, { error: `must be at most ${MAX_BASE_URL_CHARS} characters long` }),
  ),
  z.transform(text => text.replace(/\/+$/, '')),
)

/** A key that an HTTP header carries unchanged. */
export const apiKeySchema = z
  .string()
  .check(z.regex(/^\S+$/, { error: 'must be one word without white space or line breaks: check how it was stored' }))

export const booleanSchema = z.pipe(
  z.string().check(z.regex(/^(true|false)$/i, { error: 'must be true or false' })),
  z.transform(text => text.toLowerCase() === 'true'),
)

export function integerSchema(least: number, most: number) {
  const error = { error: `must be a whole number from ${least} to ${most}` }
  return z
    .pipe(z.string().check(z.regex(/^\d{1,16}$/, error)), z.transform(Number))
    .check(z.refine(value => value >= least && value <= most, error))
}

/** A named version; `latest` does not count as one. */
export const exactVersionSchema = versionSchema.check(
  z.refine(version => version !== 'latest', { error: 'must be a version other than latest' }),
)

/** A number of hours, which need not be whole. */
export const hoursSchema = z.pipe(z.string(), z.transform(Number)).check(
  z.refine(hours => hours > 0 && hours <= 87_600, {
    error: 'must be a number of hours greater than 0 and at most 87600',
  }),
)

export const minutesSchema = z.pipe(z.string(), z.transform(Number)).check(
  z.refine(value => value > 0 && value <= 1440, {
    error: 'must be a number of minutes greater than 0 and at most 1440',
  }),
)

export const projectRootSchema = z
  .pipe(
    z.string().check(
      z.regex(/^[^\p{Cc}\p{Zl}\p{Zp}]*$/u, { error: 'must be one line without control characters' }),
      z.refine(path => isAbsolute(path), {
        error: 'must be an absolute path, because installed files do not belong in the workspace',
      }),
    ),
    z.transform(path => normalize(path).replace(/(?<=.)\/+$/, '')),
  )
  .check(
    z.refine(path => Buffer.byteLength(path) <= MAX_PROJECT_ROOT_BYTES, {
      error: `must be at most ${MAX_PROJECT_ROOT_BYTES} bytes long, because the system limits the paths below it`,
    }),
    z.refine(path => path !== '/', {
      error: "must not be the file system's root: name the directory that contains plugins/ and extensions/",
    }),
  )

/**
 * Items, one per line or separated by commas. Refuses a JSON list, whose brackets and quotes would become parts of
 * names.
 */
const itemsSchema = z.pipe(
  z.string().check(
    z.regex(/^(?!\s*\[\s*["'])/, {
      error: 'must list items one per line or separated by commas, without brackets or quotes around them',
    }),
  ),
  z.transform(text =>
    text
      .split(/[,\r\n]/)
      .map(item => item.trim())
      .filter(item => item !== ''),
  ),
)

/** A list of at least one id. */
export const idsSchema = z.pipe(
  itemsSchema,
  z
    .array(idSchema)
    .check(z.minLength(1, { error: 'must list ids of plugins and extensions, one per line or separated by commas' })),
)

/** A list of at least one host, without duplicates. */
export const hostIdsSchema = z.pipe(
  z.pipe(
    itemsSchema,
    z.transform(items => [...new Set(items)]),
  ),
  z.array(hostIdSchema).check(z.minLength(1, { error: 'must list hosts, one per line or separated by commas' })),
)

/** A list of paths inside an installed directory, without final slashes. */
export const keepPathsSchema = z
  .pipe(
    itemsSchema,
    z.transform(items => items.map(item => item.replace(/(?<=[^/])\/+$/, ''))),
  )
  .check(
    z.refine(paths => paths.every(isKeepPath), {
      error:
        'must be relative paths inside the installed directory, one per line or separated by commas, without ".", "..", empty parts, backslashes or control characters',
    }),
  )

function isKeepPath(path: string): boolean {
  return (
    !isAbsolute(path) &&
    !/[\\\p{Cc}]/u.test(path) &&
    path.split('/').every(part => part !== '' && part !== '.' && part !== '..')
  )
}
