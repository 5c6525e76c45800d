import { readFileSync, type Stats } from 'node:fs'
import { cleanForeignText } from '../../../core/foreign-text.ts'

const GROUP_WRITE = 0o020
const OTHERS_WRITE = 0o002

/** Who, other than its owner, can write to a file or directory. An ACL shows in the bits of the group. */
export function otherWriters({ mode, gid }: Stats): string[] {
  return [
    ...((mode & GROUP_WRITE) === 0 ? [] : [`${nameGroup(gid)} or an ACL`]),
    ...((mode & OTHERS_WRITE) === 0 ? [] : ['every user']),
  ]
}

/** A user as an operator knows it: with the name that this host's own file gives it, and always the number. */
export function nameUser(uid: number): string {
  return nameAccount('/etc/passwd', 'user', uid)
}

/** A path as an argument of a command that the operator copies. */
export function quote(path: string): string {
  const text = cleanForeignText(path, 4096)
  return /^[\w/.@%+,:=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}

function nameGroup(gid: number): string {
  return nameAccount('/etc/group', 'group', gid)
}

function nameAccount(file: string, what: string, id: number): string {
  const name = findName(file, id)
  return name === undefined ? `${what} ${id}` : `${what} ${cleanForeignText(name, 64)} (${id})`
}

/** Both files have the name first and the number third. */
function findName(file: string, id: number): string | undefined {
  try {
    const rows = readFileSync(file, 'utf8').split('\n')
    return rows.map(row => row.split(':')).find(([, , number]) => number === String(id))?.[0]
  } catch {
    return undefined
  }
}
