import { execFileSync } from 'node:child_process'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '..')

execFileSync(process.execPath, [join(ROOT, 'scripts', 'build.ts')], { cwd: ROOT, stdio: 'inherit' })
// `git diff` misses new files.
const changes = execFileSync('git', ['status', '--porcelain', '--', 'dist'], { cwd: ROOT, encoding: 'utf8' })
if (changes !== '') {
  process.stderr.write(`dist/ does not match src/. It is rebuilt now: review and commit these files:\n${changes}`)
  process.exitCode = 1
}
