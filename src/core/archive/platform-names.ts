const WINDOWS_DEVICE = /^(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$) *(?:\.|$)/i
const WINDOWS_FORBIDDEN = /[<>:"|?*]/
const WINDOWS_DROPPED_END = /[. ]$/
const MACOS_IGNORED = /\p{Default_Ignorable_Code_Point}/gu
const NON_ASCII = /[^\p{ASCII}]/u

/** Returns why the platform would not keep a path component as it is written; undefined if it would. */
export function platformNameProblem(component: string, platform: NodeJS.Platform): string | undefined {
  if (platform === 'win32') return windowsProblem(component)
  if (platform === 'darwin') return macosProblem(component)
  return undefined
}

/**
 * Returns a key that two paths share if they may be the same file on the platform. Keys are in Unicode's NFC. On
 * Windows and macOS, they ignore case. On macOS, they also ignore the characters that macOS ignores. The slashes stay,
 * so that the key of a path begins with the keys of its parents.
 */
export function comparisonKey(path: string, platform: NodeJS.Platform): string {
  const composed = NON_ASCII.test(path) ? path.normalize('NFC') : path
  if (platform === 'win32') return foldCase(composed)
  if (platform === 'darwin') return foldCase(composed.replace(MACOS_IGNORED, ''))
  return composed
}

function windowsProblem(component: string): string | undefined {
  if (WINDOWS_DEVICE.test(component)) return 'has a name that Windows reserves for a device'
  if (WINDOWS_FORBIDDEN.test(component)) return 'has a character in its name that Windows does not allow'
  if (WINDOWS_DROPPED_END.test(component)) return 'has a name ending in a dot or space, which Windows drops'
  return undefined
}

function macosProblem(component: string): string | undefined {
  if (component.includes(':')) return 'has a colon in its name, which macOS reads as a slash'
  if (component.toLowerCase() === '..namedfork') return 'has a name that macOS reserves for resource forks'
  return undefined
}

/**
 * Converts to upper case first, which also unites names that differ only in lower case (`ß` and `ss`, the two
 * lower-case sigmas).
 */
function foldCase(text: string): string {
  return text.toUpperCase().toLowerCase().normalize('NFC')
}
