import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { cacheFolder } from '../../src/start/start.ts'

const FOLDERS: [NodeJS.ProcessEnv, string | undefined][] = [
  [{ HOME: '/home/runner' }, '/home/runner/.cache/hub-deploy'],
  [{ HOME: '/home/runner', XDG_CACHE_HOME: '/var/cache/runner' }, '/var/cache/runner/hub-deploy'],
  [{ HOME: '/home/runner', XDG_CACHE_HOME: 'cache' }, '/home/runner/.cache/hub-deploy'],
  [{ HOME: 'runner' }, undefined],
  [{ HOME: '' }, undefined],
  [{}, undefined],
]

describe('cacheFolder', () => {
  for (const [env, folder] of FOLDERS)
    it(`with ${JSON.stringify(env)} is ${folder}`, () => assert.equal(cacheFolder(env), folder))
})
