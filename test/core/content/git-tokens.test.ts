import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { parseGitTokens } from '../../../src/core/content/git-tokens.ts'

describe('parseGitTokens', () => {
  it('finds each token by its host, or by its host and port, as a URL names them', () => {
    const { tokens, problems } = parseGitTokens(
      '# mine\nGit.Example.org=a=b\n\n  git.example.org:8443 = c\r\nx.org:443=d\n[::1]=e',
    )
    assert.deepEqual(problems, [])
    assert.deepEqual(Object.fromEntries(tokens), {
      'git.example.org': 'a=b',
      'git.example.org:8443': 'c',
      'x.org': 'd',
      '[::1]': 'e',
    })
  })

  for (const line of [
    'secret',
    '=secret',
    'https://x.org=secret',
    'x.org/path=secret',
    'user@x.org=secret',
    'x.org=',
    'x.org=sec ret',
    'x.org=s\u00e9cret',
    'x.org=secret\u0007',
    '*.org=secret',
    'x.org:99999=secret',
  ]) {
    it(`refuses ${JSON.stringify(line)} and never shows the secret`, () => {
      const { tokens, problems } = parseGitTokens(`a.org=1\n${line}`)
      assert.equal(tokens.size, 1)
      assert.equal(problems.length, 1)
      assert.match(problems[0] ?? '', /line 2/)
      assert.doesNotMatch(problems[0] ?? '', /s[e\u00e9]c/)
    })
  }

  it('refuses a host that is named twice', () =>
    assert.equal(parseGitTokens('x.org=a\nX.org:443=b').problems.length, 1))
})
