import { readFileSync, type Stats } from 'node:fs'
import { cleanForeignText } from '../../../core/foreign-text.ts'

const GROUP_WRITE = 0o020
const OTHERS_WRITE = 0o002

/**
 * Names those who can write to a file or directory, other than its owner. Write access that an ACL grants shows in the
 * group's bits.
 */
export function otherWriters({ mode, gid }: Stats): string[] {
  return [
    ...((mode & GROUP_WRITE) === 0 ? [] : [`${nameGroup(gid)} or an ACL`]),
    ...((mode & OTHERS_WRITE) === 0 ? [] : ['every user']),
  ]
}

/** Names a user for an operator: by the name in /etc/passwd, if there is one, and always by number. */
export function nameUser(uid: number): string {
  return nameAccount('/etc/passwd', 'user', uid)
}

/** Quotes a path as an argument of a command that the operator copies. */
export function quote(path: string): string {
  const text = cleanForeignText(path, 4096)
  return /^[\w/.@%+,:=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}

function nameGroup(gid: number): string {
  return nameAccount('/etc/group', 'group', gid)
}

function nameAccount(file: string, kind: string, id: number): string {
  const name = findName(file, id)
  return name === undefined ? `${kind} ${id}` : `${kind} ${cleanForeignText(name, 64)} (${id})`
}

/** Both /etc/passwd and /etc/group have the name first and the number third. */
function findName(file: string, id: number): string | undefined {
  try {
    const rows = readFileSync(file, 'utf8').split('\n')
    return rows.map(row => row.split(':')).find(([, , number]) => number === String(id))?.[0]
  } catch {
    return undefined
  }
}
