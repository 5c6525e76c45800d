import { PROJECT_ID, projectFiles } from './project-stage.ts'

const INSTALLING: Readonly<Record<string, string>> = {
  cart: 'action: install_plugin, plugin: cart',
  till: 'action: install_plugin, plugin: till',
  mailer: 'action: install_extension, extension: mailer',
}

export interface Parts {
  /** Of `cart`, `till` and `mailer`; default all. */
  brought?: readonly string[]
  /** Whether replaced and removed versions are retained. */
  snapshot?: boolean
  /** What the plan goes on with: s1, s2, ..., each after the one before. */
  steps?: readonly string[]
  more?: Record<string, string>
}

/** The files of the small project in a version that brings some of its three parts. */
export function filesWith(version: string, parts: Parts = {}): Record<string, string> {
  const { brought = Object.keys(INSTALLING), more = {} } = parts
  const isBrought = ([path]: [string, string]): boolean => brought.includes(path.split('/')[1] ?? '')
  const files = Object.fromEntries(Object.entries(projectFiles(version)).filter(isBrought))
  return { ...files, 'deployment/install.yaml': planOf(brought, parts), ...more }
}

function planOf(brought: readonly string[], { snapshot = true, steps = [] }: Parts): string {
  const installing = brought.map(id => `  - {id: ${id}, snapshot: ${snapshot}, ${INSTALLING[id]}}\n`)
  const ids = [brought.join(', '), ...steps.map((_, index) => `s${index + 1}`)]
  const following = steps.map((step, index) => `  - {id: s${index + 1}, depends_on: [${ids[index]}], ${step}}\n`)
  const head = `format_version: "1"\nproject_id: ${PROJECT_ID}\nversion: "1"\nsteps:\n`
  return [head, ...installing, ...following].join('')
}
