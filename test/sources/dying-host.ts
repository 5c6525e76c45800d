import { writeSync } from 'node:fs'
import { monotonicMs } from '../../src/core/log.ts'
import { HostGit } from '../../src/sources/host-git.ts'
import { openGitStage } from './git-stage.ts'

// A process that is killed while git works for it. The first argument is `fetch`, for a fetch from the server that the
// second argument (JSON) describes, or `idle`, for a git command that only waits.

const [what, text = '{}'] = process.argv.slice(2)
const { folder, source, request } = JSON.parse(text)
if (what === 'fetch') {
  const stage = await openGitStage(folder)
  await stage.fetch(source, { request: { ...request, gitTokens: new Map(request.gitTokens) } })
} else {
  const limits = { folder, maxBytes: 1_000_000, endsAt: monotonicMs() + 600_000 }
  const git = new HostGit({ ...limits, signal: new AbortController().signal })
  const args = ['-c', 'alias.wait=!echo waiting; exec sleep 600', 'wait'] as const
  await git.read({ args }, async stdout => {
    for await (const piece of stdout) {
      writeSync(1, piece)
      process.kill(process.pid, 'SIGKILL')
    }
  })
}
