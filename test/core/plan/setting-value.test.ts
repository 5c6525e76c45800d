import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { parseEnv } from 'node:util'
import { quoteSetting } from '../../../src/core/plan/setting-value.ts'
import { temporaryDirectory } from '../../install/temporary-directory.ts'

const READ_ALIKE = [
  '',
  'plain',
  'https://db.example:5432/app?x=1',
  'user:p%40ss@host',
  '=a==b=',
  'two words',
  ' around ',
  '\t',
  '\u00a0no-break\u00a0',
  'a;b',
  'a; rm -rf /',
  'a&b|c<d>e(f)',
  '#no comment',
  'a #comment',
  'p#ss',
  '$HOME',
  '$(id)',
  '${',
  '`id`',
  'say "hi"',
  "it's",
  "it's a; #test",
  "'",
  "''",
  '"',
  '~',
  'a:~/b',
  '~root',
  '*',
  '{a,b}',
  '!!',
  'C:\\dir\\file',
  'a\\nb',
  'a\\$b',
  '%s%n',
  'grün ā \u0081 \u2028 \u0085 😀',
  'export A=1',
  '-n',
  '\u0001\u001b[31m\u007f',
  'x'.repeat(5000),
] as const

const READ_DIFFERENTLY = [
  'two\nlines',
  'a\rb',
  'a\0b',
  'a\\\\b',
  'ends in \\',
  `\${HOME}`,
  `\${}`,
  `a\${B:-c}d`,
  `it's "quoted"`,
  "it's $HOME",
  "it's `id`",
  "it's C:\\dir",
  '\ud800',
] as const

type Reader = (path: string, text: string) => string[]

const READERS: Record<string, Reader> = {
  'a shell': path => {
    const names = READ_ALIKE.map((_, index) => `"$V${index}"`).join(' ')
    const text = execFileSync('/bin/sh', ['-c', `. "$0" && printf '%s\\0' ${names}`, path], { encoding: 'utf8' })
    return text.split('\0').slice(0, -1)
  },
  'parseEnv of Node': (_, text) => {
    const values = parseEnv(text)
    return READ_ALIKE.map((_, index) => String(values[`V${index}`]))
  },
  'python-dotenv': path => {
    const program = 'import dotenv, json, sys; print(json.dumps(dotenv.dotenv_values(sys.argv[1])))'
    const values = JSON.parse(execFileSync('python3', ['-c', program, path], { encoding: 'utf8' }))
    return READ_ALIKE.map((_, index) => values[`V${index}`])
  },
}

function writeSettings(t: TestContext): { path: string; text: string } {
  const lines = READ_ALIKE.map((value, index) => `V${index}=${quoteSetting(value)}\n`)
  const path = join(temporaryDirectory(t), 'settings.env')
  writeFileSync(path, lines.join(''))
  return { path, text: lines.join('') }
}

function whyNot(reader: string): string | false {
  const lacks = reader === 'python-dotenv' && spawnSync('python3', ['-c', 'import dotenv']).status !== 0
  return lacks && 'python3 with python-dotenv is not installed'
}

describe('quoteSetting', () => {
  for (const [name, read] of Object.entries(READERS)) {
    it(`writes values that ${name} reads back unchanged`, { skip: whyNot(name) }, t => {
      const { path, text } = writeSettings(t)
      assert.deepEqual(read(path, text), READ_ALIKE)
    })
  }

  for (const value of READ_DIFFERENTLY) {
    it(`refuses ${JSON.stringify(value)}`, () => assert.equal(quoteSetting(value), undefined))
  }
})
