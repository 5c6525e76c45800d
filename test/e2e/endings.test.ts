import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { sampled } from '../extent.ts'
import { normalizeLog, normalizeSummary, type PlayedEnding, playEndings, SCENES } from './harness/endings.ts'

/** `UPDATE_GOLDEN=1` overwrites the golden files with the texts of these runs. Read the diff before you commit it. */
const IS_UPDATE = process.env['UPDATE_GOLDEN'] === '1'
const GOLDEN = join(import.meta.dirname, 'golden')
const MAX_SUMMARY_BYTES = 20_000
/**
 * The scenes to play: by default, updates, failures and a project. In CI, with `SWEEP=full`, and with
 * `UPDATE_GOLDEN=1`, also refusals and runs that only read.
 */
const PLAYED = IS_UPDATE ? SCENES : sampled(SCENES, 3)

let endings: readonly PlayedEnding[] = []

describe('the end of a run', () => {
  before(async () => {
    endings = await playEndings(PLAYED)
  })

  it('has a summary and a log like the golden files', () => {
    const texts = endings.flatMap(({ name, result, places }) => [
      { file: `${name}.md`, text: normalizeSummary(result.summary, places) },
      { file: `${name}.log`, text: normalizeLog(result.log, places) },
    ])
    if (IS_UPDATE) mkdirSync(GOLDEN, { recursive: true })
    if (IS_UPDATE) for (const { file, text } of texts) writeFileSync(join(GOLDEN, file), text)
    const played = new Set(texts.map(({ file }) => file))
    const known = readdirSync(GOLDEN).filter(file => PLAYED.length === SCENES.length || played.has(file))
    assert.deepEqual([...played].toSorted(), known.toSorted())
    for (const { file, text } of texts) assert.equal(text, readFileSync(join(GOLDEN, file), 'utf8'), file)
  })

  it('has a short summary that begins with the outcome, and ends the log with the same sentence', () => {
    for (const { name, result } of endings) {
      const [title = ''] = result.summary.split('\n')
      const last = result.log.trimEnd().split('\n').at(-1) ?? ''
      assert.match(title, /^### \S+ \S/, name)
      assert.ok(Buffer.byteLength(result.summary) < MAX_SUMMARY_BYTES, name)
      assert.equal(`${shown(title.replace(/^### \S+ /, ''))}.`, last, name)
    }
  })

  it('says why a run failed, what to do next and, for a deployment, what runs now', () => {
    for (const { name, result } of endings.filter(({ result }) => result.exitCode !== 0)) {
      assert.match(result.summary, /^\*\*Why:\*\* /m, name)
      assert.match(result.summary, /^\*\*Next:\*\* /m, name)
      if ('outcome' in result.outputs) assert.match(result.summary, /^\*\*Now:\*\* /m, name)
    }
  })

  it('says nothing twice in the log', () => {
    for (const { name, result } of endings) {
      const lines = result.log.split('\n').filter(line => !/^(::add-mask|::endgroup|$)/.test(line))
      const repeated = lines.filter((line, index) => lines.indexOf(line) !== index)
      assert.deepEqual(
        repeated.filter(line => !line.startsWith('restart unit')),
        [],
        name,
      )
    }
  })

  after(() => {
    if (IS_UPDATE) assert.ok(existsSync(GOLDEN))
  })
})

/** The visible text of Markdown in which some characters are written as numbers. */
function shown(markdown: string): string {
  return markdown.replace(/&#(\d+);/g, (_, number) => String.fromCodePoint(Number(number)))
}
