import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { zipFolder } from '../../../hub/folder-archive.ts'
import { publishArchive } from '../../../hub/marketplace/publish.ts'
import { type ActionResult, type ActionRun, runAction } from '../../../local/runner.ts'
import { type LocalStage, openLocalStage, type StageOrigin } from '../../../local/stage.ts'
import { preparedOnce } from './prepared-once.ts'

export const SIGNING_SECRET = 'the developer signs with this'

/** A local stage on which plugins and services are published and deployed. */
export interface Stage extends LocalStage {
  /** Publishes like a hub that does not check its artifacts. */
  publish(version: string, files: Record<string, string>, options?: PublishOptions): Promise<void>
  publishBytes(version: string, bytes: Uint8Array, options?: PublishOptions): Promise<void>
  writePlan(text: string): void
  /** Runs the deploy action with the inputs that every run here needs, and with these. */
  deploy(inputs?: Record<string, string>, run?: Partial<ActionRun>): Promise<ActionResult>
  /** Runs the verify action with the hub inputs that every run here needs, and with these. */
  verify(inputs?: Record<string, string>, run?: Partial<ActionRun>): Promise<ActionResult>
}

interface PublishOptions {
  kind?: 'plugin' | 'service'
  slug?: string
  replace?: boolean
  signingSecret?: string
}

export const PLUGIN_PLAN = `format_version: "1"
project_id: greeter
version: "1"
steps:
  - {id: prepare, action: prepare}
  - {id: files, action: install_plugin, plugin: greeter, snapshot: true, depends_on: [prepare]}
`

export const SERVICE_PLAN = `format_version: "1"
project_id: clock
version: "1"
steps:
  - {id: files, action: install_extension, extension: clock, snapshot: true}
`

/** The files of a small plugin. */
export function pluginFiles(version: string, more: Record<string, string> = {}): Record<string, string> {
  return {
    'plugin.yaml': `name: greeter\nversion: "${version}"\n`,
    'src/main.py': `print("hello from ${version}")\n`,
    ...more,
  }
}

/** Opens a stage, by default with an empty host; see also `preparedOnce`. */
export async function openStage(origin?: StageOrigin): Promise<Stage> {
  const stage = await openLocalStage('stage', origin)
  const { folder, hub, store, apiKey, root, workspace } = stage
  const planPath = join(workspace.path, 'install.yaml')
  writeFileSync(planPath, PLUGIN_PLAN)
  let published = 0
  const publication = (version: string, options: PublishOptions) => ({
    kind: options.kind ?? ('plugin' as const),
    slug: options.slug ?? 'greeter',
    version,
    signingSecret: options.signingSecret ?? SIGNING_SECRET,
    replace: options.replace ?? false,
  })
  const hubInputs = {
    'hub-url': hub.url,
    slug: 'greeter',
    'api-key': apiKey,
    'signing-secret': SIGNING_SECRET,
  }
  return {
    ...stage,
    async publish(version, files, options = {}) {
      const source = join(folder, `source-${++published}`)
      writeFiles(source, files)
      await publishArchive(store, zipFolder(source).bytes, publication(version, options))
    },
    async publishBytes(version, bytes, options = {}) {
      await publishArchive(store, bytes, publication(version, options))
    },
    writePlan: text => writeFileSync(planPath, text),
    deploy: (inputs = {}, run = {}) =>
      runAction({
        workspace,
        ...run,
        inputs: {
          ...hubInputs,
          'install-plan': 'install.yaml',
          'project-root': root,
          'host-id': 'host-1',
          ...inputs,
        },
      }),
    verify: (inputs = {}, run = {}) =>
      runAction({ action: 'verify', workspace, ...run, inputs: { ...hubInputs, ...inputs } }),
  }
}

/** Opens a stage with 1.0.0 installed, with these files. */
export async function openInstalled(files: Record<string, string>): Promise<Stage> {
  const origin = await preparedOnce(JSON.stringify(files), async () => {
    const stage = await openStage()
    await stage.publish('1.0.0', files)
    const { exitCode, log } = await stage.deploy()
    if (exitCode !== 0) throw new Error(log)
    return stage
  })
  return await openStage(origin)
}

export function writeFiles(root: string, files: Record<string, string>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
}
