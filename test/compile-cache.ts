import { enableCompileCache } from 'node:module'
import { dirname, join } from 'node:path'

/**
 * The folder for the compiled code of the tests, of `hub/` and of `src/`. Other users cannot write to this folder.
 */
export const COMPILE_CACHE = join(import.meta.dirname, '../node_modules/.cache/compiled')

// Only for this process, not for its children: a runner enables no compile cache for the actions that it starts.
enableCompileCache(COMPILE_CACHE)

// The actions that a test starts keep their compiled code next to COMPILE_CACHE, not in the home of the user who runs
// the tests.
process.env['XDG_CACHE_HOME'] = dirname(COMPILE_CACHE)
