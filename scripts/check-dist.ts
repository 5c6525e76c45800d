import { execFileSync } from 'node:child_process'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '..')

execFileSync(process.execPath, [join(ROOT, 'scripts', 'build.ts')], { cwd: ROOT, stdio: 'inherit' })
// `git diff` would not see files that are new.
const changes = execFileSync('git', ['status', '--porcelain', '--', 'dist'], { cwd: ROOT, encoding: 'utf8' })
if (changes !== '') {
  process.stderr.write(`dist/ is not what src/ builds; it now is, so look at it and commit it:\n${changes}`)
  process.exitCode = 1
}
