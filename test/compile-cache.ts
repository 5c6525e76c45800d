import { enableCompileCache } from 'node:module'
import { dirname, join } from 'node:path'

/** Where node keeps what it has compiled of the tests, of `hub/` and of `src/`. Others cannot write there. */
export const COMPILE_CACHE = join(import.meta.dirname, '../node_modules/.cache/compiled')

// For this process alone, not for those that it starts: an action runs as on a runner, which has no such cache.
enableCompileCache(COMPILE_CACHE)

// The actions that a test starts keep their compiled code next to it, and not in the home of the user who runs the tests.
process.env['XDG_CACHE_HOME'] = dirname(COMPILE_CACHE)
