import { isAbsolute, join } from 'node:path'

/**
 * Returns the folder for data that this user's programs can lose (XDG Base Directory Specification). It belongs to this
 * action and may not exist yet. Returns undefined if the environment names none. It is outside every project root,
 * because a service that works as the same user may be confined to its root.
 */
export function cacheFolder({ XDG_CACHE_HOME, HOME }: NodeJS.ProcessEnv): string | undefined {
  const bases = [XDG_CACHE_HOME ?? '', join(HOME ?? '', '.cache')]
  const base = bases.find(isAbsolute)
  return base && join(base, 'hub-deploy')
}
