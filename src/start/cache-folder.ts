import { isAbsolute, join } from 'node:path'

/**
 * Where this user's programs keep what they can do without (XDG Base Directory Specification): a folder of this action's
 * own, which may be missing; undefined where the environment names none. It is outside every project root, because a
 * service that works as the same user may be confined to its root.
 */
export function cacheFolder({ XDG_CACHE_HOME, HOME }: NodeJS.ProcessEnv): string | undefined {
  const bases = [XDG_CACHE_HOME ?? '', join(HOME ?? '', '.cache')]
  const base = bases.find(isAbsolute)
  return base && join(base, 'hub-deploy')
}
