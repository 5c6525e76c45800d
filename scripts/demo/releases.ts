import { cpSync, mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'

const EXAMPLES = resolve(import.meta.dirname, '../../examples')

/** Sources that start as a copy of `examples/<kind>`. */
interface Sources {
  kind: 'plugin' | 'service' | 'project'
  version: string
  /** Files that replace or extend the example: contents by path. */
  changes: Readonly<Record<string, string>>
}

export interface Release extends Sources {
  kind: 'plugin' | 'service'
  slug: string
}

export interface ProjectRelease extends Sources {
  kind: 'project'
}

export const GREETER = { kind: 'plugin', slug: 'greeter' } as const
export const CLOCK = { kind: 'service', slug: 'clock' } as const

export const RELEASES = {
  greeter1: { ...GREETER, version: '1.0.0', changes: {} },
  clock1: { ...CLOCK, version: '1.0.0', changes: {} },
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
      '.env.template': '# Settings of the greeter on this host\nGREETER_LANGUAGE=en\nGREETER_TOKEN=\n',
    },
  },
  shop1: { kind: 'project', version: '1.0.0', changes: {} },
  shop11: {
    kind: 'project',
    version: '1.1.0',
    changes: { 'extensions/mailer/run.sh': '#!/bin/sh\nexec python3 -u "$(dirname "$0")/mailer.py"\n' },
  },
} as const satisfies Record<string, Release | ProjectRelease>

/** Writes the sources of a release into `folder`. */
export function writeSources(release: Sources, folder: string): void {
  cpSync(join(EXAMPLES, release.kind), folder, { recursive: true })
  for (const [path, text] of Object.entries(release.changes)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), text)
  }
}

/** The path of an example plan. */
export function examplePlan(name: string): string {
  return join(EXAMPLES, name)
}

function pluginYaml(version: string): string {
  return `name: greeter\nversion: "${version}"\nexecution_mode: trusted\nentry_point: src/main.py\n`
}
