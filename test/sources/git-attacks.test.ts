import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, afterEach, before, describe, it } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { basicCredentials } from '../../src/core/content/source.ts'
import { DeployError } from '../../src/core/errors.ts'
import { HANG_LIMIT_MS, sampled } from '../extent.ts'
import { whyNoGitServer } from './git-server.ts'
import { type GitStage, namesIn, openGitStage } from './git-stage.ts'

const skip = whyNoGitServer() ?? false
const TOKEN = 'a-secret-token-of-32-characters!'

describe('fetching a part with git', { skip }, () => {
  let stage: GitStage
  before(async () => {
    stage = await openGitStage()
  })
  afterEach(() => {
    stage.server.intercept = undefined
  })
  after(() => stage.close())

  const source = (name: string, ref: string): { url: string; ref: string } => ({
    url: `${stage.server.url}/${name}`,
    ref,
  })

  it('applies no attribute: no line ending, encoding, ident, substitution, omission or filter', async () => {
    const marker = join(stage.folder, 'filtered')
    const files = {
      '.gitattributes':
        '* text eol=crlf ident export-subst filter=evil\nhidden export-ignore\nwide working-tree-encoding=UTF-16\n',
      'a.txt': '$Id$ $Format:%H$\nline\n',
      hidden: 'here\n',
      wide: 'x\n',
    }
    const ref = stage.repository('attributes').commit(files)
    await withHome(
      `[filter "evil"]\n\tsmudge = touch ${marker}\n\tprocess = touch ${marker}\n\trequired = true\n`,
      async () => {
        const { staged, tree } = await stage.fetch(source('attributes', ref))
        for (const [path, text] of Object.entries(files)) assert.equal(readFileSync(join(staged, path), 'utf8'), text)
        assert.equal(tree.files.length, 4)
      },
    )
    assert.equal(existsSync(marker), false)
  })

  it('ignores the configuration of the host, its user and the job', async () => {
    const marker = join(stage.folder, 'ran')
    const ref = stage.repository('configured').commit({ a: '1' })
    const hooks = join(stage.folder, 'hooks')
    mkdirSync(hooks)
    for (const hook of ['post-checkout', 'reference-transaction', 'post-index-change', 'fsmonitor']) {
      writeFileSync(join(hooks, hook), `#!/bin/sh\ntouch ${marker}\n`, { mode: 0o755 })
    }
    const config = `[core]\n\thooksPath = ${hooks}\n\tfsmonitor = ${hooks}/fsmonitor\n[init]\n\ttemplateDir = ${hooks}\n[url "https://evil.example/"]\n\tinsteadOf = https://\n[http]\n\tproxy = http://127.0.0.1:9\n\tsslVerify = false\n[credential]\n\thelper = "!touch ${marker}"\n[core]\n\tgitProxy = ${hooks}/fsmonitor\n`
    const job = {
      ...{ GIT_CONFIG_PARAMETERS: "'http.proxy=http://127.0.0.1:9'", GIT_CONFIG_COUNT: '1' },
      ...{ GIT_CONFIG_KEY_0: 'http.proxy', GIT_CONFIG_VALUE_0: 'http://127.0.0.1:9', GIT_SSL_NO_VERIFY: '1' },
      ...{ GIT_TEMPLATE_DIR: hooks, GIT_EXEC_PATH: hooks, GIT_ASKPASS: `${hooks}/fsmonitor`, GIT_TRACE: '1' },
      ...{ GIT_DIR: '/nonexistent', GIT_WORK_TREE: '/', GIT_ALTERNATE_OBJECT_DIRECTORIES: '/nonexistent' },
    }
    await withHome(
      config,
      async () => {
        assert.equal((await stage.fetch(source('configured', ref))).commit, ref)
        const { code } = await stage.refusal(source('configured', ref), { request: { ca: undefined } })
        assert.equal(code, 'network')
      },
      job,
    )
    assert.equal(existsSync(marker), false)
  })

  /** Trees that a git repository may contain, but that no host accepts. */
  const trees: Record<string, { code: RegExp; lines: (blob: string) => string[] }> = {
    'a submodule': { code: /^unsafe_archive$/, lines: () => [`160000 commit ${'a1'.repeat(20)}\tsub`] },
    'a symlink out of the tree': {
      code: /^unsafe_archive$/,
      lines: () => [`120000 blob ${blob('../../etc/passwd')}\tx`],
    },
    'an absolute symlink': { code: /^unsafe_archive$/, lines: () => [`120000 blob ${blob('/etc/passwd')}\tx`] },
    'a symlink to itself': { code: /^unsafe_archive$/, lines: () => [`120000 blob ${blob('x')}\tx`] },
    'a symlink with a very long target': {
      code: /^unsafe_archive$/,
      lines: () => [`120000 blob ${blob('x'.repeat(5000))}\tx`],
    },
    'a file below .git': {
      code: /^bad_response$/,
      lines: file => [`040000 tree ${tree(`100755 blob ${file}\tpost-checkout`)}\t.git`],
    },
    'a name that leaves the tree': {
      code: /^bad_response$/,
      lines: file => [`040000 tree ${tree(`100644 blob ${file}\tx`)}\t..`],
    },
    'a name with a backslash': { code: /^unsafe_archive$/, lines: file => [`100644 blob ${file}\ta\\b`] },
    'a name with an escape sequence': { code: /^unsafe_archive$/, lines: file => [`100644 blob ${file}\t\u001b[2J`] },
    'a name that is not UTF-8': { code: /^unsafe_archive$/, lines: file => [`100644 blob ${file}\t\udcff`] },
    'two equivalent names': {
      code: /^unsafe_archive$/,
      lines: file => [`100644 blob ${file}\t\u00e9`, `100644 blob ${file}\te\u0301`],
    },
    'no files': { code: /^empty_artifact$/, lines: () => [] },
  }
  let blob: (text: string) => string
  let tree: (line: string) => string
  for (const [what, { code, lines }] of sampled(Object.entries(trees), 3)) {
    it(`refuses a commit with ${what}`, async () => {
      const name = what.replaceAll(/\W/g, '-')
      const repository = stage.repository(name)
      blob = text => repository.blob(text)
      tree = line => repository.rawTree([line])
      const ref = repository.commitTree(repository.rawTree(lines(repository.blob('x'))))
      assert.match((await stage.refusal(source(name, ref))).code, code)
    })
  }

  it('refuses a server that sends more than max-artifact-bytes allows', async () => {
    const { randomBytes } = await import('node:crypto')
    const ref = stage.repository('huge').commit({ a: randomBytes(3_000_000), b: randomBytes(3_000_000) })
    const { code } = await stage.refusal(source('huge', ref), { request: { maxArtifactBytes: 1_000_000 } })
    assert.equal(code, 'archive_too_large')
  })

  it('refuses small packs that unpack to a lot: zeros, many copies of one file, and nested trees', async () => {
    const limits = { request: { extraction: { maxExtractedBytes: 10_000_000, maxEntries: 1000 } } }
    const zeros = stage.repository('zeros').commit({ a: Buffer.alloc(30_000_000) })
    assert.equal((await stage.refusal(source('zeros', zeros), limits)).code, 'archive_too_large')
    const copies = stage.repository('copies')
    const same = copies.blob(Buffer.alloc(1_000_000, 'x'))
    const many = copies.tree(Array.from({ length: 20 }, (_, index) => `100644 blob ${same}\tf${index}`))
    assert.equal((await stage.refusal(source('copies', copies.commitTree(many)), limits)).code, 'archive_too_large')
    const bomb = stage.repository('bomb')
    let level = bomb.tree([`100644 blob ${bomb.blob('')}\tx`])
    for (let depth = 0; depth < 12; depth++)
      level = bomb.tree(Array.from({ length: 10 }, (_, index) => `040000 tree ${level}\td${index}`))
    assert.equal((await stage.refusal(source('bomb', bomb.commitTree(level)), limits)).code, 'archive_too_large')
  })

  it('refuses an answer that is not git, and a damaged pack', async () => {
    const ref = stage.repository('damaged').commit({ a: '1' })
    stage.server.intercept = (_, response) => {
      response.writeHead(200, { 'content-type': 'text/html' }).end('<h1>log in</h1>')
      return true
    }
    assert.match(
      (await stage.refusal(source('damaged', ref))).code,
      /^(?:artifact_unavailable|bad_response|not_found)$/,
    )
    stage.server.intercept = (request, response) => {
      if (request.method !== 'POST') return false
      response.writeHead(200, { 'content-type': 'application/x-git-upload-pack-result' })
      response.end('000dpackfile\n0012\u0001PACKdamaged!0000')
      return true
    }
    assert.match((await stage.refusal(source('damaged', ref))).code, /^(?:artifact_unavailable|bad_response)$/)
  })

  it('fetches the listed commit even if the branch moves meanwhile', async () => {
    const repository = stage.repository('moving')
    const first = repository.commit({ a: '1' })
    let posts = 0
    stage.server.intercept = request => {
      // Protocol 2 lists the refs in the first POST, and fetches in the second.
      if (request.method === 'POST' && ++posts === 2) repository.commit({ a: '2' })
      return false
    }
    const { commit, staged } = await stage.fetch(source('moving', 'main'))
    assert.equal(posts, 2)
    assert.equal(commit, first)
    assert.equal(readFileSync(join(staged, 'a'), 'utf8'), '1')
  })

  it('ends a silent fetch at the timeout or when the run is cancelled, and leaves no process behind', {
    timeout: HANG_LIMIT_MS,
  }, async () => {
    const ref = stage.repository('slow').commit({ a: '1' })
    stage.server.intercept = () => true
    assert.equal((await stage.refusal(source('slow', ref), { request: { downloadTimeoutMs: 700 } })).code, 'timeout')
    await lastEnds(stage.folder)
    const controller = new AbortController()
    const reason = new DeployError('cancelled', 'cancelled')
    stage.server.intercept = () => {
      controller.abort(reason)
      return true
    }
    assert.equal(await stage.refusal(source('slow', ref), { signal: controller.signal }), reason)
    await lastEnds(stage.folder)
  })

  it('shows no token in an argument or a file, and sends each token only to its own host and port', async () => {
    const ref = stage.repository('private').commit({ a: '1' })
    const seen: string[] = []
    stage.server.intercept = () => {
      seen.push(...commandLines(), ...contentsBelow(stage.folder))
      return false
    }
    const { host } = stage.server
    const gitTokens = new Map([
      [host, TOKEN],
      ['127.0.0.1', 'of the default port'],
      ['git.example.org', 'of another'],
    ])
    stage.server.requests.length = 0
    await stage.fetch(source('private', ref), { request: { gitTokens } })
    const sent = new Set(stage.server.requests.map(({ headers }) => headers.authorization))
    assert.deepEqual([...sent], [`Basic ${basicCredentials(TOKEN)}`])
    assert.ok(seen.some(text => text.includes('git-remote-https') || text.includes('remote-https')))
    for (const secret of [TOKEN, basicCredentials(TOKEN)]) assert.ok(!seen.some(text => text.includes(secret)))
    stage.server.requests.length = 0
    gitTokens.delete(host)
    await stage.fetch(source('private', ref), { request: { gitTokens } })
    assert.deepEqual([...new Set(stage.server.requests.map(({ headers }) => headers.authorization))], [undefined])
  })

  it('refuses every redirect: to another server, to this host, and to another scheme', async () => {
    const ref = stage.repository('redirecting').commit({ a: '1' })
    const other = await openGitStage()
    try {
      const gitTokens = new Map([[stage.server.host, TOKEN]])
      for (const location of [
        `${other.server.url}/redirecting`,
        'file:///etc',
        'http://127.0.0.1/x',
        `${stage.server.url}/private`,
      ]) {
        stage.server.intercept = (request, response) => {
          response.writeHead(302, { location: `${location}${(request.url ?? '').replace('/redirecting', '')}` }).end()
          return true
        }
        const { code } = await stage.refusal(source('redirecting', ref), { request: { gitTokens } })
        assert.equal(code, 'bad_response', location)
      }
      assert.deepEqual(other.server.requests, [])
    } finally {
      await other.close()
    }
  })

  it('fails at once if the server asks for a password or denies access', async () => {
    const ref = stage.repository('guarded').commit({ a: '1' })
    for (const status of [401, 403]) {
      stage.server.intercept = (_, response) => {
        response.writeHead(status, { 'www-authenticate': 'Basic realm="::error::x"' }).end()
        return true
      }
      const { code, message } = await stage.refusal(source('guarded', ref))
      assert.equal(code, 'authentication_failed')
      assert.match(message, /sources-git-tokens/)
    }
  })

  it('reports a git that ends before it has printed every file', async () => {
    const ref = stage.repository('broken-off').commit({ a: '1', b: '2' })
    const bin = join(stage.folder, 'breaking-off')
    mkdirSync(bin)
    const real = execFileSync('/bin/sh', ['-c', 'command -v git'], { encoding: 'utf8' }).trim()
    const script = `#!/bin/sh\n[ "$1" != cat-file ] || exec kill -9 $$\nexec ${real} "$@"\n`
    writeFileSync(join(bin, 'git'), script, { mode: 0o755 })
    await withEnvironment({ PATH: `${bin}:${process.env['PATH']}` }, async () => {
      const { code, message } = await stage.refusal(source('broken-off', ref))
      assert.equal(code, 'bad_response')
      assert.match(message, /git ended before it had printed every file of the commit/)
    })
  })

  it('refuses an old git and a git in a relative folder of PATH, and reports a missing git', async () => {
    const ref = stage.repository('gitless').commit({ a: '1' })
    const folder = join(stage.folder, 'bin')
    mkdirSync(folder)
    writeFileSync(join(folder, 'git'), '#!/bin/sh\necho git version 2.30.1\n')
    chmodSync(join(folder, 'git'), 0o755)
    for (const path of [folder, '/nonexistent', '/nonexistent:bin:.:']) {
      await withEnvironment({ PATH: path }, async () => {
        assert.equal((await stage.refusal(source('gitless', ref))).code, 'source_not_supported', path)
      })
    }
  })

  async function withHome(config: string, act: () => Promise<void>, more: Record<string, string> = {}): Promise<void> {
    const home = join(stage.folder, `home-${namesIn(stage.folder).length}`)
    mkdirSync(home)
    writeFileSync(join(home, '.gitconfig'), config)
    await withEnvironment({ HOME: home, GIT_CONFIG_GLOBAL: join(home, '.gitconfig'), ...more }, act)
  }
})

async function withEnvironment(more: Record<string, string>, act: () => Promise<void>): Promise<void> {
  const before = { ...process.env }
  Object.assign(process.env, more)
  try {
    await act()
  } finally {
    for (const name of Object.keys(more)) delete process.env[name]
    Object.assign(process.env, before)
  }
}

/** The command lines of all processes. */
function commandLines(): string[] {
  return processes().map(({ line }) => line)
}

/**
 * Waits until the processes of a fetch have ended. The last of them kills its group and itself after the fetch has
 * failed.
 */
async function lastEnds(folder: string): Promise<void> {
  while (childrenIn(folder).length > 0) await setTimeout(10)
}

/** The command lines of the processes that fetch into a folder. */
function childrenIn(folder: string): string[] {
  return processes().flatMap(({ line, pid }) => {
    try {
      return readFileSync(`/proc/${pid}/environ`, 'utf8').includes(`GIT_DIR=${folder}/fetch-`) ? [line] : []
    } catch {
      return []
    }
  })
}

function processes(): { pid: string; line: string }[] {
  return readdirSync('/proc').flatMap(pid => {
    try {
      return /^\d+$/.test(pid) ? [{ pid, line: readFileSync(`/proc/${pid}/cmdline`, 'utf8') }] : []
    } catch {
      return []
    }
  })
}

function contentsBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true }).flatMap(entry => {
    try {
      return entry.isFile() ? [readFileSync(join(entry.parentPath, entry.name), 'latin1')] : []
    } catch {
      return []
    }
  })
}
