import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { zstdCompressSync } from 'node:zlib'
import type { ErrorCode } from '../../../src/core/errors.ts'
import { HOSTILE_TARS } from '../../archives/hostile-tars.ts'
import { buildTar, file } from '../../archives/tar-builder.ts'
import { whyLeftToCi } from '../../extent.ts'
import { itRefuses, type Lie, openDeployedStage, TO_KEY } from '../harness/project-evidence.ts'
import { PROJECT_PLAN, type ProjectStage } from '../harness/project-stage.ts'
import { type ProjectChanges, projectTar, sealBytes, sealTar } from '../harness/untrusted-project-hub.ts'

let stage: ProjectStage
before(async () => {
  stage = await openDeployedStage()
})
after(() => stage.close())

/** The cases that run outside CI, too. The code that the other cases reach is also tested without a process. */
const TRIED = new Set([
  'bytes after the compressed stream',
  'a bomb',
  'unsafe_archive--symlink-then-write-through',
  'a manifest with a missing plugin',
  'a file that the digest in the manifest does not cover',
  'a missing manifest',
  'the plan of another project',
  'a plan that restarts a service without a supervisor',
  'a plan that reads a missing file',
])

function refuses(name: string, lie: Lie): void {
  if (TRIED.has(name) || whyLeftToCi() === false) itRefuses(name, () => stage, lie)
  else it(name, { skip: whyLeftToCi() })
}

describe('a project deployment refuses, before anything is installed,', () => {
  const extracting = { during: 'extracting', asked: TO_KEY } as const
  const zstd = zstdCompressSync(projectTar())
  refuses('an archive that is not compressed', {
    ...extracting,
    code: 'invalid_archive',
    offer: on => sealBytes(projectTar(), on.signingKey),
  })
  refuses('a compressed stream that ends early', {
    ...extracting,
    code: 'invalid_archive',
    offer: on => sealBytes(zstd.subarray(0, -9), on.signingKey),
  })
  refuses('bytes after the compressed stream', {
    ...extracting,
    code: 'invalid_archive',
    offer: on => sealBytes(Buffer.concat([zstd, Buffer.from('more')]), on.signingKey),
  })
  refuses('a bomb', {
    ...extracting,
    code: 'archive_too_large',
    inputs: { 'max-extracted-bytes': '1000000' },
    offer: on => sealTar(buildTar([file('zeros', Buffer.alloc(8_000_000))]), on.signingKey),
  })
  for (const what of [
    'unsafe_archive--dotdot-first',
    'unsafe_archive--hard-link-out',
    'unsafe_archive--symlink-then-write-through',
    'unsafe_archive--fifo',
    'unsafe_archive--pax-path-dotdot',
    'invalid_archive--another-archive-after-the-end',
  ]) {
    const [hostile] = HOSTILE_TARS.filter(({ name }) => name === what)
    const code = what.split('--')[0] as ErrorCode
    const bytes = hostile?.bytes ?? (() => assert.fail('no such archive'))
    refuses(what, { ...extracting, code, offer: on => sealTar(bytes(), on.signingKey) })
  }
})

describe('a project deployment refuses, before the plan is read,', () => {
  const content = (code: ErrorCode, changes: ProjectChanges): Lie => ({
    code,
    during: 'verifying_manifest',
    asked: TO_KEY,
    offer: on => sealTar(projectTar(changes), on.signingKey),
  })
  const manifests: Record<string, Lie> = {
    'a manifest of another format': content('invalid_manifest', { manifest: { format_version: '2' } }),
    'the manifest of another project': content('invalid_manifest', { manifest: { project_id: 'stolen' } }),
    'the manifest of another version': content('version_mismatch', { manifest: { version: '1.9.0' } }),
    'a manifest without plugins': content('invalid_manifest', { manifest: { plugins: [] } }),
    'a manifest with a missing plugin': content('invalid_manifest', {
      manifest: { plugins: [{ id: 'ghost', version: '1.0.0', sha256: 'a'.repeat(64) }] },
    }),
    'a manifest with a source that could change': content('unpinned_source', {
      manifest: { extensions: [{ id: 'mailer', source: { url: 'https://elsewhere.example/x', ref: 'main' } }] },
    }),
    'a file that the digest in the manifest does not cover': content('content_mismatch', {
      more: [file('plugins/cart/more.py', 'evil')],
    }),
    'a manifest without a digest': content('invalid_manifest', { manifest: { content_sha256: undefined } }),
  }
  for (const [what, lie] of Object.entries(manifests)) refuses(what, lie)
  refuses('a missing manifest', {
    ...content('invalid_manifest', {}),
    offer: on => sealTar(buildTar([file('plugins/cart/plugin.yaml', 'name: cart')]), on.signingKey),
  })
})

describe('a project deployment refuses, before any step runs,', () => {
  const planned = (plan: string): Lie => ({
    code: 'invalid_plan',
    during: 'validating_project',
    asked: TO_KEY,
    offer: on => sealTar(projectTar({ files: { 'deployment/install.yaml': plan } }), on.signingKey),
    says: /deployment\/install\.yaml/,
  })
  const step = (text: string): string => `${PROJECT_PLAN}  - {id: last, depends_on: [mailer], ${text}}\n`
  const plans: Record<string, string> = {
    'the plan of another project': PROJECT_PLAN.replace('project_id: shop', 'project_id: stolen'),
    'a plan with an unknown action': step('action: run, command: [rm, -rf, /]'),
    'a plan of a plugin that the manifest does not name': step('action: install_plugin, plugin: ghost'),
    'a plan whose steps depend on each other': PROJECT_PLAN.replace('snapshot: true', 'depends_on: [mailer]'),
    'a plan that is not YAML': 'steps: [',
    'a plan that restarts a service without a supervisor': step('action: restart, plugin: cart'),
    'a plan that provisions without a command': step('action: provision, plugin: cart'),
    'a plan that reads a file outside the artifact': step('action: write_env, plugin: cart, from: ../../etc/passwd'),
    'a plan that reads a missing file': step('action: write_env, plugin: cart, from: plugins/cart/nothing'),
  }
  for (const [what, plan] of Object.entries(plans)) refuses(what, planned(plan))
})
