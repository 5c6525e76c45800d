import { realpathSync } from 'node:fs'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { UsageError } from '../../errors.ts'
import type { Command } from '../command.ts'
import { parseCommandLine, requireOption } from '../command-line.ts'
import { SEAL_OPTIONS, SEAL_USAGE, sealSource } from './seal-options.ts'
import { releasePath, writeSealedFile } from './sealed-file.ts'

export const seal: Command = {
  summary: 'seals a source folder into a file, to publish elsewhere or later',
  usage: `npm run hub -- project seal --source DIR --version V --signing-key FILE [options]

${SEAL_USAGE}
  --out FILE             the sealed file (default P-V.sealed)

Sealing leaves out, and lists, version control, dependencies, caches, .env (not .env.template), private keys, credential
files, and files outside the project's folders. It also writes FILE.release.json, which contains the key of the sealed
file: give FILE.release.json only to the publisher.`,
  run: async args => {
    const { values } = parseCommandLine(args, { ...SEAL_OPTIONS, out: { type: 'string' } })
    const sealed = await sealSource(values)
    const { project_id, version, signer_public_key } = sealed.release
    const out = values.out ?? `${project_id}-${version}.sealed`
    requireOutside(requireOption('source', values.source), out)
    writeSealedFile(out, sealed)
    console.log(`Sealed the project ${project_id} ${version} into ${out}: ${sealed.bytes.length} bytes`)
    console.log(`Signed by ${signer_public_key}. ${releasePath(out)} contains the key of ${out}: keep it secret.`)
  },
}

/** Refuses a sealed file in the source folder, because the next run could seal it again as part of the project. */
function requireOutside(source: string, out: string): void {
  const [folder, target] = [followFolder(source), join(followFolder(dirname(out)), basename(out))]
  const way = relative(folder, target)
  if (way === '..' || way.startsWith('../') || resolve(way) === way) return
  throw new UsageError(`The option --out must name a file outside the source folder ${source}, not ${out}.`)
}

function followFolder(path: string): string {
  try {
    return realpathSync(path)
  } catch {
    return resolve(path)
  }
}
