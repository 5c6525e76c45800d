import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { byExtent } from '../../extent.ts'
import { type DamagedHosts, openDamagedHosts } from '../harness/damaged-hosts.ts'
import { countOutcomes } from '../harness/random.ts'

/** The seed of a failed case, to repeat only that case. */
const SEED = process.env['DAMAGE_SEED']

const SWEEPS = [
  { by: 'calls', cases: byExtent({ sample: 10, ci: 400, full: 2000 }), atOnce: 4 },
  { by: 'processes', cases: byExtent({ sample: 1, ci: 12 }), atOnce: 2 },
] as const

describe('a host whose update was killed and whose records were then damaged', () => {
  let hosts: DamagedHosts

  before(async () => {
    hosts = await openDamagedHosts()
  })

  after(() => hosts.close())

  for (const { by, cases, atOnce } of SWEEPS) {
    it(`loses nothing, touches no foreign file, and says what to do, with runs as ${by}`, async t => {
      const seeds = SEED === undefined ? Array.from({ length: cases }, (_, index) => `${by}-${index}`) : [SEED]
      const [outcomes, failures]: [string[], string[]] = [[], []]
      const check = async (): Promise<void> => {
        for (let seed = seeds.pop(); seed !== undefined; seed = seeds.pop()) {
          await hosts.check(seed, by).then(
            outcome => outcomes.push(outcome),
            error => failures.push(textOf(error)),
          )
        }
      }
      await Promise.all(Array.from({ length: atOnce }, check))
      t.diagnostic(`${outcomes.length} cases of ${hosts.images.length} images: ${countOutcomes(outcomes)}`)
      assert.equal(failures.length, 0, failures.join('\n\n'))
    })
  }
})

function textOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return error.cause === undefined ? `${error.stack}` : `${error.message}\n${textOf(error.cause)}`
}
