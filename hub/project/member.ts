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

/** The most symlinks that clients follow on one path. */
const MAX_HOPS = 40

interface Following {
  /** The folder that contains the symlink and that no step may leave; `''` means the project's root. */
  readonly within: string
  /** The most symlinks to follow. */
  readonly hops?: number
}

/**
 * Returns the sealed file or folder that a symlink leads to, directly or through other symlinks. Undefined if there is
 * none, if a target is not relative, if a step leaves the sealed folders of `within`, or if the chain has more than 40
 * symlinks.
 */
export function resolveLink(
  members: ReadonlyMap<string, Member>,
  { path, target }: LinkMember,
  { within, hops = MAX_HOPS }: Following,
): Member | undefined {
  if (target.startsWith('/')) return undefined
  const lowest = within === '' ? 0 : within.split('/').length
  const at = path.split('/').slice(0, -1)
  for (const step of target.split('/')) {
    if (at.length < lowest || members.get(at.join('/'))?.type !== 'directory') return undefined
    if (step === '..') at.pop()
    else if (step !== '' && step !== '.') at.push(step)
    const found = members.get(at.join('/'))
    if (found?.type !== 'symlink') continue
    const end = hops > 1 ? resolveLink(members, found, { within, hops: hops - 1 }) : undefined
    if (end === undefined) return undefined
    at.splice(0, at.length, ...end.path.split('/'))
  }
  return at.length < lowest ? undefined : members.get(at.join('/'))
}
