import type { DeploymentFacts } from './facts.ts'

type NamedRun = Pick<DeploymentFacts, 'slug' | 'id' | 'version' | 'rollback_of'>

/**
 * Names the run that a journal or report is about, without an article: `deployment of greeter 2.0.0`, or `rollback of
 * greeter to 1.0.0`. Leaves out what is not known.
 */
export function nameRun({ slug = null, id = null, version = null, rollback_of: replaced }: Partial<NamedRun>): string {
  const kind = replaced === undefined ? 'deployment' : 'rollback'
  const name = slug ?? id
  if (name === null) return kind
  const to = replaced === undefined ? '' : 'to '
  return version === null ? `${kind} of ${name}` : `${kind} of ${name} ${to}${version}`
}
