interface Place {
  /** Relative to the project's root, `/` between the parts. */
  readonly path: string
}

export interface FileMember extends Place {
  readonly type: 'file'
  /** Where its bytes are read. */
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

/** What becomes one entry of the sealed tar. */
export type Member = FileMember | LinkMember | (Place & { readonly type: 'directory' })

/**
 * The file or folder that a symlink leads to; undefined unless its target is relative and every step towards it is a
 * folder among the members, so that it passes through no other symlink.
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
