import { PROJECT_ID, projectFiles } from './project-stage.ts'

const INSTALLING: Readonly<Record<string, string>> = {
  cart: 'action: install_plugin, plugin: cart',
  till: 'action: install_plugin, plugin: till',
  mailer: 'action: install_extension, extension: mailer',
}

export interface Parts {
  /** The parts among `cart`, `till` and `mailer`; default all. */
  included?: readonly string[]
  /** True to retain replaced and removed versions; default true. */
  snapshot?: boolean
  /** Further steps of the plan: s1, s2, ..., each after the previous one. */
  steps?: readonly string[]
  more?: Record<string, string>
}

/** The files of one version of the small project, with all or some of its three parts. */
export function filesWith(version: string, parts: Parts = {}): Record<string, string> {
  const { included = Object.keys(INSTALLING), more = {} } = parts
  const isIncluded = ([path]: [string, string]): boolean => included.includes(path.split('/')[1] ?? '')
  const files = Object.fromEntries(Object.entries(projectFiles(version)).filter(isIncluded))
  return { ...files, 'deployment/install.yaml': planOf(included, parts), ...more }
}

function planOf(included: readonly string[], { snapshot = true, steps = [] }: Parts): string {
  const installing = included.map(id => `  - {id: ${id}, snapshot: ${snapshot}, ${INSTALLING[id]}}\n`)
  const ids = [included.join(', '), ...steps.map((_, index) => `s${index + 1}`)]
  const following = steps.map((step, index) => `  - {id: s${index + 1}, depends_on: [${ids[index]}], ${step}}\n`)
  const head = `format_version: "1"\nproject_id: ${PROJECT_ID}\nversion: "1"\nsteps:\n`
  return [head, ...installing, ...following].join('')
}
