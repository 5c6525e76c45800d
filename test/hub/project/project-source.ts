import { generateKeyPairSync } from 'node:crypto'
import type { TestContext } from 'node:test'
import { publishProject } from '../../../hub/project/publish.ts'
import { type SealedProject, type SealOptions, sealProject } from '../../../hub/project/seal.ts'
import type { Store } from '../../../hub/store.ts'
import { type Ends, newFolder } from '../running-hub.ts'

export const SIGNING_KEY = generateKeyPairSync('ed25519').privateKey

/** The files of a small project `shop` with a plugin and an extension. */
export const SHOP = {
  'plugins/cart/plugin.yaml': 'name: cart\nversion: "1.10"\nenvironment:\n  required: [DB_URL]\n',
  'plugins/cart/src/main.py': 'print("cart")\n',
  'plugins/cart/.env.template': 'DB_URL=\n',
  'extensions/mailer/run.sh': '#!/bin/sh\n',
  'deployment/install.yaml': `project_id: shop
steps:
  - {id: cart, action: install_plugin, plugin: cart}
  - {id: mailer, action: install_extension, extension: mailer}
  - {id: env, action: write_env, plugin: cart, from: plugins/cart/.env.template, depends_on: [cart]}
`,
} as const

/** Seals the project `shop`. `files` adds files to it, replaces its files or, with undefined, removes them. */
export async function sealShop(
  t: Ends,
  options: Partial<SealOptions> = {},
  files: Record<string, string | undefined> = {},
): Promise<SealedProject> {
  const source = options.source ?? newShop(t, files)
  return sealProject({ source, projectId: 'shop', version: '1.0.0', signingKey: SIGNING_KEY, ...options })
}

export function newShop(t: Ends, files: Record<string, string | undefined> = {}): string {
  const present = Object.entries({ ...SHOP, ...files }).filter(([, content]) => content !== undefined)
  return newFolder(t, Object.fromEntries(present) as Record<string, string>)
}

/** Seals the project `shop` and publishes it to the hub's data folder. */
export async function publishShop(t: TestContext, store: Store, version: string): Promise<SealedProject> {
  const sealed = await sealShop(t, { version })
  await publishProject(store, sealed)
  return sealed
}
