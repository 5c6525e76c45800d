interface Place {
  /** Relative to the project's root, with `/`. */
  readonly path: string
}

export interface FileMember extends Place {
  readonly type: 'file'
  /** The file to read. */
  readonly source: string
  readonly size: number
  readonly isExecutable: boolean
  /** Lowercase hex. */
  readonly sha256: string
}

export interface LinkMember extends Place {
  readonly type: 'symlink'
  readonly target: string
}

/** A file, symlink or folder that becomes one entry of the sealed tar. */
export type Member = FileMember | LinkMember | (Place & { readonly type: 'directory' })

/** The limit of clients. */
const MAX_HOPS = 40

/**
 * Returns the file or folder that a symlink leads to, directly or through other symlinks. Undefined unless each target
 * is relative, every step stays in sealed folders of the same plugin or extension, and there are at most 40 of them.
 */
export function resolveLink(
  members: ReadonlyMap<string, Member>,
  { path, target }: LinkMember,
  hops = MAX_HOPS,
): Member | undefined {
  const [kind, id, ...rest] = path.split('/')
  const part = [kind, id]
  const at = [...part, ...rest.slice(0, -1)]
  for (const step of target.split('/')) {
    if (at.length < part.length || members.get(at.join('/'))?.type !== 'directory') return undefined
    if (step === '..') at.pop()
    else if (step !== '' && step !== '.') at.push(step)
    const found = members.get(at.join('/'))
    if (found?.type !== 'symlink') continue
    const end = hops > 1 ? resolveLink(members, found, hops - 1) : undefined
    if (end === undefined) return undefined
    at.splice(0, at.length, ...end.path.split('/'))
  }
  return at.length < part.length ? undefined : members.get(at.join('/'))
}
