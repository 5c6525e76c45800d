import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { requireOption } from '../hub/commands/command-line.ts'
import { parseKind, parseSlug } from '../hub/commands/versions.ts'
import { UsageError } from '../hub/errors.ts'
import { buildFiles, type NewFile } from './init/files.ts'
import { hostCommands } from './init/host-commands.ts'
import { readActionSource, readRepository } from './init/repository.ts'
import { parseHosts, parseHubUrl, type Wish } from './init/wish.ts'
import { runProgram } from './program.ts'
import { print, printHeading } from './terminal/screen.ts'
import { pathFromCaller } from './try/operator-files.ts'
import { secretName } from './workflow.ts'

await runProgram({
  name: 'npm run init',
  purpose: `Writes the files of your repository for the deployment of a plugin or service: the workflow, the install plan, and
the config of each host. Prints the commands that prepare each host. Overwrites nothing.`,
  options: {
    slug: { type: 'string', value: 'SLUG', help: 'the slug of the plugin or service on the hub' },
    'hub-url': { type: 'string', value: 'URL', help: 'the base URL of the hub' },
    kind: { type: 'string', default: 'plugin', value: 'KIND', help: 'plugin or service (default: plugin)' },
    host: {
      type: 'string',
      multiple: true,
      default: [] as string[],
      value: 'NAME=ROOT',
      help: "a host and its project root, for example app-1=/srv/app; NAME is also its runner's\nlabel. Repeat it for more",
    },
    out: { type: 'string', default: '.', value: 'DIR', help: 'your repository (default: the current folder)' },
  },
  async run({ slug, 'hub-url': hubUrl, kind, host, out }) {
    const wish: Wish = {
      part: { kind: parseKind(kind), slug: parseSlug(requireOption('slug', slug)) },
      hubUrl: parseHubUrl(requireOption('hub-url', hubUrl)),
      hosts: parseHosts(host),
    }
    const folder = pathFromCaller(out)
    writeFiles(folder, buildFiles(wish, readActionSource()))
    showCommands(wish, folder)
  },
})

/** Writes the files that do not exist yet. Throws UsageError before the first if one exists that it may not keep. */
function writeFiles(folder: string, files: readonly NewFile[]): void {
  const taken = files.filter(({ path, text, isShared }) => !isShared && !isFree(join(folder, path), text))
  if (taken.length > 0)
    throw new UsageError(
      `Nothing was written, because these files exist with another text: ${taken.map(({ path }) => join(folder, path)).join(', ')}. Remove them, or choose another folder with --out.`,
    )
  printHeading(`Files in ${folder}`)
  for (const { path, text } of files) {
    const full = join(folder, path)
    if (existsSync(full)) {
      print(isFree(full, text) ? `${path}: unchanged` : `${path}: kept as it is. Add what it lacks of this:`)
      if (!isFree(full, text)) print('', ...text.trimEnd().split('\n'), '')
      continue
    }
    mkdirSync(dirname(full), { recursive: true })
    writeFileSync(full, text, { flag: 'wx' })
    print(`${path}: written`)
  }
}

function isFree(path: string, text: string): boolean {
  return !existsSync(path) || readFileSync(path, 'utf8') === text
}

function showCommands(wish: Wish, folder: string): void {
  const remote = readRepository(folder)
  const url = remote === undefined ? 'URL' : `https://github.com/${remote}`
  for (const host of wish.hosts) {
    printHeading(`Once on ${host.name}, as a user with sudo`)
    print(...hostCommands(wish.part, host, url))
  }
  printHeading('Then')
  print(
    `1. On GitHub, under Settings → Environments, create the environment production with the secrets HUB_API_KEY and ${secretName(wish.part.slug, 'SIGNING_SECRET')}.`,
    '2. Commit and push the files.',
    `3. Under Actions, start the workflow "Deploy ${wish.part.slug}".`,
  )
}
