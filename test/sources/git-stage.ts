import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { externalSourceSchema, type GitSource } from '../../src/core/content/source.ts'
import { DeployError } from '../../src/core/errors.ts'
import { createWire, type WireOptions } from '../../src/net/wire.ts'
import { fetchGitTree, type GitTree } from '../../src/sources/git.ts'
import type { SourceRequest } from '../../src/sources/request.ts'
import { SourceSupplier } from '../../src/sources/supplier.ts'
import { type CollectedLog, collectLog } from '../install/prepared-host.ts'
import { type GitServer, startGitServer } from './git-server.ts'

/**
 * A bare repository whose commits are written object by object, so that it may contain trees that no checkout would
 * create.
 */
export class Repository {
  readonly path: string

  constructor(folder: string, name: string, format: 'sha1' | 'sha256' = 'sha1') {
    this.path = join(folder, name)
    mkdirSync(dirname(this.path), { recursive: true })
    this.git(['init', '--quiet', '--bare', `--object-format=${format}`, this.path])
    this.git(['config', 'uploadpack.allowAnySHA1InWant', 'true'])
    this.git(['config', 'gc.auto', '0'])
  }

  /** Runs git and returns its output, without the last line break. */
  git(args: readonly string[], input: string | Buffer = ''): string {
    const inside = args[0] === 'init' ? [] : ['-C', this.path]
    const { status, stdout, stderr } = spawnSync('git', [...inside, ...args], {
      input,
      maxBuffer: 1024 ** 3,
      env: { PATH: process.env['PATH'] ?? '', HOME: '/nonexistent', GIT_CONFIG_NOSYSTEM: '1', ...AUTHOR },
    })
    if (status !== 0) throw new Error(`git ${args.join(' ')}: ${stderr}`)
    return stdout.toString().trimEnd()
  }

  blob(content: string | Buffer): string {
    return this.git(['hash-object', '-w', '--stdin'], content)
  }

  /** Takes lines as `git mktree` reads them: mode, type, id, tab, name. */
  tree(lines: readonly string[]): string {
    return this.git(['mktree', '--missing'], `${lines.join('\n')}\n`)
  }

  /**
   * Does the same as `tree` without git's checks of names, for a tree that no index could contain. Names with a lone
   * surrogate are written in Latin-1.
   */
  rawTree(lines: readonly string[]): string {
    const entries = lines.map(line => {
      const [meta = '', name = ''] = line.split('\t')
      const [mode = '', , oid = ''] = meta.split(' ')
      const bytes = /[\udc80-\udcff]/.test(name) ? Buffer.from(name, 'latin1') : Buffer.from(name)
      return Buffer.concat([
        Buffer.from(`${mode.replace(/^0/, '')} `),
        bytes,
        Buffer.from([0]),
        Buffer.from(oid, 'hex'),
      ])
    })
    const sorted = entries.sort(Buffer.compare)
    return this.git(['hash-object', '-t', 'tree', '-w', '--literally', '--stdin'], Buffer.concat(sorted))
  }

  /** Commits files by path. A text after `->` is a symlink's target; a text after `+x ` is an executable's content. */
  commit(files: Readonly<Record<string, string | Buffer>>, branch = 'main'): string {
    return this.commitTree(this.#treeOf(Object.entries(files)), branch)
  }

  commitTree(tree: string, branch = 'main'): string {
    const commit = this.git(['commit-tree', tree, '-m', 'a commit'])
    this.git(['update-ref', `refs/heads/${branch}`, commit])
    this.git(['symbolic-ref', 'HEAD', 'refs/heads/main'])
    return commit
  }

  #treeOf(files: readonly (readonly [string, string | Buffer])[]): string {
    const byName = Map.groupBy(files, ([path]) => path.split('/', 1)[0] ?? '')
    const lines = [...byName].map(([name, below]) => {
      const [[path, content] = ['', '']] = below
      if (path === name) return this.#fileLine(name, content)
      const rest = below.map(([path, content]) => [path.slice(name.length + 1), content] as const)
      return `040000 tree ${this.#treeOf(rest)}\t${name}`
    })
    return this.tree(lines)
  }

  #fileLine(name: string, content: string | Buffer): string {
    const text = content.toString()
    if (text.startsWith('->')) return `120000 blob ${this.blob(text.slice(2))}\t${name}`
    if (text.startsWith('+x ')) return `100755 blob ${this.blob(text.slice(3))}\t${name}`
    return `100644 blob ${this.blob(content)}\t${name}`
  }
}

const AUTHOR = {
  ...{ GIT_AUTHOR_NAME: 'a', GIT_AUTHOR_EMAIL: 'a@example.org', GIT_AUTHOR_DATE: '1700000000 +0000' },
  ...{ GIT_COMMITTER_NAME: 'a', GIT_COMMITTER_EMAIL: 'a@example.org', GIT_COMMITTER_DATE: '1700000000 +0000' },
}

/** A git server with repositories, and a host that fetches from it. */
export interface GitStage {
  readonly folder: string
  readonly server: GitServer
  readonly log: CollectedLog
  repository(name: string, format?: 'sha1' | 'sha256'): Repository
  /** Fetches as a deployment does. The source is written as in a manifest. */
  fetch(source: Record<string, string>, more?: FetchOptions): Promise<GitTree>
  /** Returns the error that refuses a fetch. Throws if the fetch succeeds. */
  refusal(source: Record<string, string>, more?: FetchOptions): Promise<DeployError>
  /** Creates the supplier of all parts of one run. */
  supplier(request?: Partial<SourceRequest>): SourceSupplier
  close(): Promise<void>
}

export interface FetchOptions {
  readonly request?: Partial<SourceRequest>
  readonly wire?: Partial<WireOptions>
  readonly signal?: AbortSignal
  /** The folder for the tree. Default: a new folder of the stage. */
  readonly folder?: string
}

export async function openGitStage(parent = tmpdir()): Promise<GitStage> {
  const folder = mkdtempSync(join(parent, 'git-stage-'))
  const server = await startGitServer(join(folder, 'served'))
  mkdirSync(join(folder, 'served'))
  const log = collectLog()
  let fetches = 0
  const fetch = async (written: Record<string, string>, options: FetchOptions = {}): Promise<GitTree> => {
    const source = externalSourceSchema.parse(written) as GitSource
    const target = options.folder ?? join(folder, `fetch-${++fetches}`)
    mkdirSync(target, { recursive: true })
    return await fetchGitTree(hostOf(options), source, target)
  }
  return {
    folder,
    server,
    log,
    repository: (name, format) => new Repository(join(folder, 'served'), name, format),
    fetch,
    async refusal(written, options) {
      try {
        await fetch(written, options)
      } catch (error) {
        assert.ok(error instanceof DeployError, String(error))
        return error
      }
      return assert.fail('the fetch was not refused')
    },
    supplier(request = {}) {
      const host = hostOf({ request })
      return new SourceSupplier(host.request, host.tools)
    },
    async close() {
      await server.close()
      rmSync(folder, { recursive: true, force: true })
    },
  }

  function hostOf({ request = {}, wire = {}, signal = new AbortController().signal }: FetchOptions) {
    const options = { allowHttp: false, userAgent: 'test', log: () => {}, ...wire }
    const made = createWire(options)
    const tools = { wires: { wire: made, reportWire: made }, log, signal, now: () => new Date() }
    const runner = { temporaryFolder: folder, workflow: NO_WORKFLOW }
    return { request: { ...requestTo(server), ...request }, tools: { ...tools, runner } }
  }
}

const NO_WORKFLOW = { workflow: null, run_id: null, run_attempt: null, job: null, actor: null, url: null }

/** The request of a deployment from a hub on the same host, so that the server's address is not refused. */
function requestTo({ url, certificate }: GitServer): SourceRequest {
  return {
    marketplace: { hubUrl: undefined, apiKey: undefined, apiKeys: new Map(), signingSecret: undefined },
    gitTokens: new Map(),
    hubUrl: url,
    ca: certificate.cert,
    allowDowngrade: false,
    downloadTimeoutMs: 60_000,
    maxArtifactBytes: 64 * 1024 * 1024,
    extraction: { maxExtractedBytes: 64 * 1024 * 1024, maxEntries: 10_000 },
  }
}

/** The names in a folder, at any depth. */
export function namesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true }).map(String).sort()
}
