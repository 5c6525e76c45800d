import { isAbsolute, join } from 'node:path'

/**
 * Returns this action's folder in the user's cache, whose data can be lost (XDG Base Directory Specification). The
 * folder may not exist yet. Returns undefined if the environment names no absolute path. By default, the folder is not
 * in a project root: a service that may write only there, but runs as the same user, must not be able to replace this
 * action's compiled code.
 */
export function cacheFolder({ XDG_CACHE_HOME, HOME }: NodeJS.ProcessEnv): string | undefined {
  const bases = [XDG_CACHE_HOME ?? '', join(HOME ?? '', '.cache')]
  const base = bases.find(isAbsolute)
  return base && join(base, 'hub-deploy')
}
