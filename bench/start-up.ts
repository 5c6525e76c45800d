import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { median } from './statistics.ts'

const ROUNDS = 11
/** The work of the first TLS connection before its handshake. */
const READ_ROOTS = "require('node:https'); require('node:tls').createSecureContext()"

/** Median start-up times in milliseconds, from Node.js alone to our action without inputs, in interleaved runs. */
export function measureStarts(repository: string): { what: string; ms: number }[] {
  const dist = join(repository, 'dist')
  // Loads the bundle but runs no action, because the bundle has none with this name.
  const load = `try { require('${dist}/start.js').start('${dist}', 'none') } catch (error) {
    if (!error.message.includes('no action none')) throw error
  }`
  const starts = [
    { what: '`node -e 0`', args: ['-e', '0'], times: [] as number[] },
    { what: 'loading `node:http`', args: ['-e', "require('node:http')"], times: [] },
    { what: 'loading `node:https`, which is HTTP and TLS', args: ['-e', "require('node:https')"], times: [] },
    { what: 'and reading the certificates that Node.js trusts', args: ['-e', READ_ROOTS], times: [] },
    { what: 'loading `dist/index.js`', args: ['-e', load], times: [] },
    { what: '`dist/deploy.js` without inputs', args: [join(dist, 'deploy.js')], times: [] },
  ]
  for (let round = 0; round <= ROUNDS; round++) {
    for (const { args, times } of starts) times.push(timeStart(args))
  }
  return starts.map(({ what, times }) => ({ what, ms: median(times.slice(1)) }))
}

function timeStart(args: readonly string[]): number {
  const startedAt = performance.now()
  const { status } = spawnSync(process.execPath, args, { env: { PATH: process.env['PATH'] }, stdio: 'ignore' })
  if (args[0] === '-e' && status !== 0) throw new Error(`node ${args.join(' ')} failed.`)
  return performance.now() - startedAt
}
