/** Returns a test that is true for each of these paths, and for paths below them. */
export function isBelow(paths: readonly string[]): (path: string) => boolean {
  return path => paths.some(kept => path === kept || path.startsWith(`${kept}/`))
}
