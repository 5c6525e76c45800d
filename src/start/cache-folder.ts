import { isAbsolute, join } from 'node:path'

/**
 * Returns this action's folder in the user's cache, whose data can be lost (XDG Base Directory Specification). The
 * folder may not exist yet. Returns undefined if the environment names no absolute path. The folder is not in a
 * project root by default: a service that runs as the same user, but may write only there, could otherwise replace this
 * action's compiled code.
 */
export function cacheFolder({ XDG_CACHE_HOME, HOME }: NodeJS.ProcessEnv): string | undefined {
  const bases = [XDG_CACHE_HOME ?? '', join(HOME ?? '', '.cache')]
  const base = bases.find(isAbsolute)
  return base && join(base, 'hub-deploy')
}
