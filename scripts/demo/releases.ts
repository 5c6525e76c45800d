import { cpSync, mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'

const EXAMPLES = resolve(import.meta.dirname, '../../examples')

export interface Release {
  kind: 'plugin' | 'service'
  slug: string
  version: string
  /** What differs from the example's sources: texts by path. */
  changes: Readonly<Record<string, string>>
}

const GREETER = { kind: 'plugin', slug: 'greeter' } as const

export const RELEASES = {
  greeter1: { ...GREETER, version: '1.0.0', changes: {} },
  clock1: { kind: 'service', slug: 'clock', version: '1.0.0', changes: {} },
  greeter11: {
    ...GREETER,
    version: '1.1.0',
    changes: {
      'plugin.yaml': pluginYaml('1.1.0'),
      'src/greeting.py': 'def greet(name: str) -> str:\n    return f"Good day, {name.strip() or \'world\'}!"\n',
      'src/farewell.py': 'def part(name: str) -> str:\n    return f"Goodbye, {name}!"\n',
    },
  },
  greeter12: { ...GREETER, version: '1.2.0', changes: { 'plugin.yaml': pluginYaml('1.2.0') } },
  greeter2: {
    ...GREETER,
    version: '2.0.0',
    changes: {
      'plugin.yaml': `${pluginYaml('2.0.0')}environment:\n  required: [GREETER_TOKEN]\n`,
      '.env.template': '# What the greeter needs of this host\nGREETER_LANGUAGE=en\nGREETER_TOKEN=\n',
    },
  },
} as const satisfies Record<string, Release>

/** Writes the release's sources into `folder`: the example's, and what it changes of them. */
export function writeSources(release: Release, folder: string): void {
  cpSync(join(EXAMPLES, release.kind), folder, { recursive: true })
  for (const [path, text] of Object.entries(release.changes)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), text)
  }
}

/** The path of an example's plan. */
export function examplePlan(name: string): string {
  return join(EXAMPLES, name)
}

function pluginYaml(version: string): string {
  return `name: greeter\nversion: "${version}"\nexecution_mode: trusted\nentry_point: src/main.py\n`
}
