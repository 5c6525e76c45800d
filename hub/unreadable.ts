/** The end of a sentence about a file that cannot be read: what is wrong with the file, and what to do. */
export function unreadable(error: unknown, ifMissing = 'correct the path'): string {
  const { code } = error as NodeJS.ErrnoException
  switch (code) {
    case 'ENOENT':
      return `does not exist: ${ifMissing}`
    case 'EISDIR':
      return 'is a folder: name a file'
    default:
      return `cannot be read (${code}): correct the path or the permissions`
  }
}
