import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { externalSourceSchema, type GitSource } from '../../../src/core/content/external-source.ts'
import { DeployError } from '../../../src/core/errors.ts'
import { createWire, type WireOptions } from '../../../src/net/wire.ts'
import { fetchGitTree, type GitTree } from '../../../src/sources/git/git-source.ts'
import type { SourceRequest } from '../../../src/sources/source-request.ts'
import { SourceSupplier } from '../../../src/sources/supplier.ts'
import { type CollectedLog, collectLog } from '../../install/collected-log.ts'
import { type GitServer, startGitServer } from './git-server.ts'
import { Repository } from './repository.ts'

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
    marketplace: { hubUrl: undefined, apiKey: undefined, signingSecret: undefined },
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
