/** Whether a path is one of these, or below one. */
export function isBelow(paths: readonly string[]): (path: string) => boolean {
  return path => paths.some(kept => path === kept || path.startsWith(`${kept}/`))
}
