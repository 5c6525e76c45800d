import { readFileSync, realpathSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'

/**
 * Returns the mount points at or below a path, including bind mounts, in the order in which the system lists them.
 * Resolves symlinks in the path's parents, but not in its last component. Returns an empty list if the system does not
 * list its mounts.
 */
export function mountPointsIn(path: string): string[] {
  const mountPoints = readMountPoints()
  if (mountPoints.length === 0) return []
  const real = join(realpathSync(dirname(path)), basename(path))
  return mountPoints.filter(point => point === real || point.startsWith(`${real}/`))
}

/**
 * Parses the mount points in the text of `/proc/self/mountinfo`, which writes some bytes in octal. Omits deleted mount
 * points.
 */
export function parseMountPoints(text: Buffer): string[] {
  const lines = text.toString('latin1').split('\n')
  const points = lines.flatMap(line => line.split(' ').slice(4, 5))
  return points.filter(point => !point.endsWith('//deleted')).map(decode)
}

function decode(point: string): string {
  const bytes = point.replace(/\\([0-7]{3})/g, (_, octal) => String.fromCharCode(Number.parseInt(octal, 8)))
  return Buffer.from(bytes, 'latin1').toString('utf8')
}

function readMountPoints(): string[] {
  try {
    return parseMountPoints(readFileSync('/proc/self/mountinfo'))
  } catch {
    return []
  }
}
