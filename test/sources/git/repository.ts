import { spawnSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { dirname, join } from 'node:path'

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
