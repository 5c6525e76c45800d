// Preloaded into an action: copies the project root ROOT to a numbered folder in IMAGES before each call that changes
// names, so that each copy is the host as a kill at that call would leave it. `<number>.json` next to a copy contains
// the call, and the path of each inode.
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { join } from 'node:path'

const { ROOT, IMAGES } = process.env
const { existsSync, lstatSync, readdirSync, writeFileSync } = fs
let count = 0

for (const name of ['renameSync', 'linkSync', 'unlinkSync', 'rmdirSync', 'mkdirSync']) {
  const call = fs[name]
  fs[name] = (...args) => {
    const paths = args.filter(arg => typeof arg === 'string' || Buffer.isBuffer(arg)).map(String)
    if (paths.some(path => path.startsWith(`${ROOT}/`) || path.startsWith('/proc/self/fd/'))) takeImage(name, paths)
    return call(...args)
  }
}
syncBuiltinESMExports()

function takeImage(name, paths) {
  // A run that does not have the lock changes nothing that is installed.
  if (!existsSync(join(ROOT, '.hub-deploy/lock'))) return
  const image = join(IMAGES, String(count++).padStart(4, '0'))
  execFileSync('cp', ['-a', ROOT, image])
  const inodes = Object.fromEntries(
    readdirSync(ROOT, { recursive: true, encoding: 'utf8' }).map(path => [lstatSync(join(ROOT, path)).ino, path]),
  )
  const call = [name, ...paths.map(path => path.replace(`${ROOT}/`, ''))].join(' ')
  writeFileSync(`${image}.json`, JSON.stringify({ call, inodes }))
}
