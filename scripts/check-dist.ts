import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { runProgram } from './program.ts'

const ROOT = join(import.meta.dirname, '..')

await runProgram({
  name: 'npm run check-dist',
  purpose: 'Rebuilds dist/ and fails (exit code 1) if the result differs from what is committed.',
  options: {},
  run: checkDist,
})

async function checkDist(): Promise<void> {
  execFileSync(process.execPath, [join(ROOT, 'scripts', 'build.ts')], { cwd: ROOT, stdio: 'inherit' })
  // `git diff` misses new files.
  const changes = execFileSync('git', ['status', '--porcelain', '--', 'dist'], { cwd: ROOT, encoding: 'utf8' })
  if (changes === '') return
  process.stderr.write(
    `The committed dist/ does not match src/. It has been rebuilt: review and commit these files:\n${changes}`,
  )
  process.exitCode = 1
}
