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

/**
 * The file or folder that a symlink leads to; undefined unless its target is relative and its way there leads through
 * folders among the members only, so through no other symlink.
 */
export function resolveLink(members: ReadonlyMap<string, Member>, { path, target }: LinkMember): Member | undefined {
  const at = path.split('/').slice(0, -1)
  for (const step of target.split('/')) {
    if (members.get(at.join('/'))?.type !== 'directory') return undefined
    if (step === '..') at.pop()
    else if (step !== '' && step !== '.') at.push(step)
  }
  const found = members.get(at.join('/'))
  return found?.type === 'symlink' ? undefined : found
}
