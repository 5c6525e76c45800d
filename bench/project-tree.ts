import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { SLUG } from './release.ts'

/** The ids of a project's plugins. */
export function pluginIds(parts = 1): readonly string[] {
  return parts === 1 ? [SLUG] : Array.from({ length: parts }, (_, index) => `${SLUG}-${index + 1}`)
}

/** Adds the manifest and the install plan to a project that already contains its plugins (docs/project-contract.md). */
export function addProjectFiles(project: string, version: string, ids: readonly string[]): void {
  mkdirSync(join(project, 'deployment'))
  writeFileSync(join(project, 'deployment/install.yaml'), installPlan(version, ids))
  const manifest = {
    format_version: '1',
    project_id: SLUG,
    project_name: 'Bench',
    version,
    built_at: '2026-01-01T00:00:00Z',
    plugins: ids.map(id => ({ id, version, sha256: digestTree(join(project, 'plugins', id)) })),
    extensions: [],
    content_sha256: digestTree(project),
  }
  writeFileSync(join(project, 'manifest.json'), JSON.stringify(manifest, null, 2))
}

/** A plan that installs these plugins. It keeps the replaced versions, as the peers do. */
export function installPlan(version: string, ids: readonly string[] = [SLUG]): string {
  return [
    'format_version: "1"',
    `project_id: ${SLUG}`,
    `version: ${version}`,
    'steps:',
    ...ids.map((id, index) => `  - {id: files-${index + 1}, action: install_plugin, plugin: ${id}, snapshot: true}`),
    '',
  ].join('\n')
}

function digestTree(root: string): string {
  const paths = readdirSync(root, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .map(entry => relative(root, join(entry.parentPath, entry.name)))
  const lines = paths.toSorted(byComponents).map(path => `${path}:${sha256(readFileSync(join(root, path)))}`)
  return sha256(lines.join('\n'))
}

// With the smallest byte as separator, paths sort component by component.
function byComponents(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a.replaceAll('/', '\0')), Buffer.from(b.replaceAll('/', '\0')))
}

function sha256(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex')
}
