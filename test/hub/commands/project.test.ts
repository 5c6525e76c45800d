import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { logIn } from '../project/project-client.ts'
import { listTar, newShop, openSealed } from '../project/project-source.ts'
import { CLI, hub } from '../run-cli.ts'
import { type HubUnderTest, newFolder, runHub } from '../running-hub.ts'

describe('the command line of projects', { concurrency: 3 }, () => {
  it('publishes a project, releases its key, and revokes it', async t => {
    const running = await runHub(t)
    const data = ['--data', running.dataDir]
    const { publicKey, sealing } = await prepare(t)
    const published = await hub('project', 'publish', ...sealing, ...data)
    assert.equal(published.code, 0, published.stderr)
    assert.match(published.stderr, /^Left out: plugins\/cart\/\.env$/m)
    const token = await logIn(running, await issued('devkey', data))
    const credential = await issued('credential', data)
    const descriptor = await readDescriptor(running, token)
    assert.equal(descriptor.signer_public_key, publicKey)
    const json = { deployment_credential: credential, artifact_signature: descriptor.signature }
    const authorize = () => running.call('/v1/deployments/authorize', { bearer: token, json })
    assert.equal((await authorize()).status, 200)
    const id = /^(\S+) +credential /m.exec((await hub('project', 'keys', ...data)).stdout)?.[1] ?? ''
    assert.equal((await hub('project', 'revoke', id, ...data)).code, 0)
    assert.equal((await authorize()).status, 403)
  })

  it('seals into a file that another hub can publish', async t => {
    const { folder, sealing } = await prepare(t)
    const out = join(folder, 'shop.sealed')
    const sealed = await hub('project', 'seal', ...sealing, '--out', out)
    assert.equal(sealed.code, 0, sealed.stderr)
    assert.equal(statSync(`${out}.release.json`).mode & 0o777, 0o600)
    const release = JSON.parse(readFileSync(`${out}.release.json`, 'utf8'))
    assert.equal(sealed.stdout.includes(release.dek), false)
    assert.ok(listTar(openSealed({ bytes: readFileSync(out), release })).length > 5)
    const data = ['--data', join(folder, 'data')]
    const published = await hub('project', 'publish', '--sealed', out, ...data)
    assert.equal(published.code, 0, published.stderr)
    assert.match((await hub('project', 'versions', ...data)).stdout, /^shop +1\.0\.0 +served /m)
  })

  it('creates a project with an id that other clients accept, and publishes its first version to a running hub', async t => {
    const running = await runHub(t)
    const data = ['--data', running.dataDir]
    const created = await hub('project', 'create', '--name', 'The shop', ...data)
    const id = created.stdout.trim()
    assert.match(created.stdout, /^prj_[A-Za-z0-9]{20}\n$/)
    assert.ok((await (await running.call('/')).text()).includes('The shop'))
    assert.match((await hub('project', 'list', ...data)).stdout, new RegExp(`^${id} +The shop +none +0$`, 'm'))
    const named = ['--project-id', id]
    const devkey = await hub('project', 'devkey', ...named, '--name', 'ci', '--publish', ...data)
    process.env['HUB_TEST_DEVKEY'] = devkey.stdout.trim()
    t.after(() => delete process.env['HUB_TEST_DEVKEY'])
    const { sealing, folder } = await prepare(t)
    const plan =
      'format_version: "1"\nproject_id: X\nversion: 1.0.0\nsteps:\n  - {id: cart, action: install_plugin, plugin: cart}\n'.replace(
        'X',
        id,
      )
    const source = newShop(t, { 'deployment/install.yaml': plan })
    const remote = ['--hub-url', `${running.url}/app/xdeploy/`, '--devkey-env', 'HUB_TEST_DEVKEY']
    const publish = ['project', 'publish', ...sealing, ...named, '--source', source]
    const published = await hub(...publish, ...remote)
    assert.equal(published.code, 0, published.stderr)
    assert.match((await hub('project', 'versions', ...data)).stdout, new RegExp(`^${id} +1\\.0\\.0 +served `, 'm'))
    assert.match((await hub('project', 'list', ...data)).stdout, new RegExp(`^${id} +The shop +1\\.0\\.0 +1$`, 'm'))
    const again = await hub(...publish, ...remote)
    assert.equal(again.code, 1)
    assert.match(again.stderr, /409 \(.*already published/)
    process.env['HUB_TEST_DEVKEY'] = (
      await hub('project', 'devkey', ...named, '--name', 'login', ...data)
    ).stdout.trim()
    assert.match(
      (await hub(...publish, ...remote)).stderr,
      /cannot publish: create one with "project devkey --publish"/,
    )
    process.env['HUB_TEST_DEVKEY'] = devkey.stdout.trim()
    for (const [wrong, code] of [
      [['--hub-url', 'http://hub.example', '--devkey-env', 'HUB_TEST_DEVKEY'], 1],
      [['--hub-url', running.url], 2],
      [['--devkey-env', 'HUB_TEST_DEVKEY'], 2],
      [[...remote, ...data], 2],
      [['--hub-url', running.url, '--devkey-env', 'HUB_TEST_UNSET'], 2],
    ] as const) {
      assert.equal((await hub(...publish, ...wrong)).code, code, wrong.join(' '))
    }
    const out = join(folder, 'second.sealed')
    await hub('project', 'seal', ...sealing, ...named, '--source', source, '--version', '2.0.0', '--out', out)
    assert.equal((await hub('project', 'publish', '--sealed', out, ...remote)).code, 0)
  })

  it('revokes a version, or all keys of a project', async t => {
    const { folder, sealing } = await prepare(t)
    const data = ['--data', join(folder, 'data')]
    await hub('project', 'publish', ...sealing, ...data)
    await issued('devkey', data)
    assert.equal((await hub('project', 'revoke', '--project-id', 'shop', '--version', '1.0.0', ...data)).code, 0)
    assert.match((await hub('project', 'versions', ...data)).stdout, /^shop +1\.0\.0 +revoked /m)
    assert.match((await hub('project', 'keys', ...data)).stdout, / active /)
    assert.equal((await hub('project', 'revoke', '--project-id', 'shop', ...data)).code, 0)
    assert.doesNotMatch((await hub('project', 'keys', ...data)).stdout, / active /)
  })

  it('notes that a version is revoked when it is published again, and keeps it revoked', async t => {
    const running = await runHub(t)
    const data = ['--data', running.dataDir]
    const { folder, sealing } = await prepare(t)
    const out = join(folder, 'shop.sealed')
    await hub('project', 'seal', ...sealing, '--out', out)
    const publish = ['project', 'publish', '--sealed', out]
    assert.equal((await hub(...publish, ...data)).stderr, '')
    const devkey = await hub('project', 'devkey', '--project-id', 'shop', '--name', 'ci', '--publish', ...data)
    process.env['HUB_TEST_PUBLISHER'] = devkey.stdout.trim()
    t.after(() => delete process.env['HUB_TEST_PUBLISHER'])
    await hub('project', 'revoke', '--project-id', 'shop', '--version', '1.0.0', ...data)
    for (const where of [data, ['--hub-url', running.url, '--devkey-env', 'HUB_TEST_PUBLISHER']]) {
      const { code, stderr } = await hub(...publish, ...where)
      assert.equal(code, 0, stderr)
      assert.match(stderr, /^Note: this version is revoked, so the hub does not release its key: .*\n$/)
      assert.match((await hub('project', 'versions', ...data)).stdout, /^shop +1\.0\.0 +revoked /m)
    }
  })

  it('creates a signing key that openssl understands and only its user can read', async t => {
    const { publicKey, key } = await prepare(t)
    assert.equal(statSync(key).mode & 0o777, 0o600)
    const der = execFileSync('openssl', ['pkey', '-in', key, '-pubout', '-outform', 'DER'])
    assert.equal(der.subarray(-32).toString('base64'), publicKey)
  })

  it('never overwrites a key or a sealed file', async t => {
    const { folder, key, sealing } = await prepare(t)
    const before = readFileSync(key)
    assert.equal((await hub('project', 'keygen', '--out', key)).code, 1)
    assert.deepEqual(readFileSync(key), before)
    const seal = ['project', 'seal', ...sealing, '--out', join(folder, 'sealed')]
    assert.equal((await hub(...seal)).code, 0)
    assert.equal((await hub(...seal)).code, 1)
  })

  it('seals under the id in the plan, and names the file after it', async t => {
    const { folder, sealing } = await prepare(t)
    const stdout = execFileSync(process.execPath, [CLI, 'project', 'seal', ...sealing], {
      cwd: folder,
      encoding: 'utf8',
    })
    assert.match(stdout, /^Sealed the project shop 1\.0\.0 into shop-1\.0\.0\.sealed: /)
  })

  it('refuses to seal into the source folder', async t => {
    const { source, sealing } = await prepare(t)
    const before = readdirSync(source)
    const ended = await hub('project', 'seal', ...sealing, '--out', join(source, 'plugins/../shop.sealed'))
    assert.equal(ended.code, 2)
    assert.deepEqual(readdirSync(source), before)
  })

  it('creates no data folder to list or revoke', async t => {
    const data = join(newFolder(t), 'data')
    for (const args of [['versions'], ['keys'], ['revoke', 'x'], ['revoke', '--project-id', 'shop']]) {
      assert.equal((await hub('project', ...args, '--data', data)).code, 1)
    }
    assert.equal(existsSync(data), false)
  })

  it('names the option of a name that is refused', async t => {
    const { folder, sealing } = await prepare(t)
    const data = ['--data', join(folder, 'data')]
    assert.equal((await hub('project', 'publish', ...sealing, ...data)).code, 0)
    for (const command of [['create'], ['devkey', '--project-id', 'shop'], ['credential', '--project-id', 'shop']]) {
      const { code, stdout, stderr } = await hub('project', ...command, '--name', 'a\nb', ...data)
      assert.deepEqual([code, stdout], [2, ''])
      assert.match(stderr, /^The option --name must be 1 to 255 characters .*, not "a\\nb": correct it\.\n$/)
    }
  })

  it('creates no key for a project that was never published', async t => {
    const { folder, sealing } = await prepare(t)
    const data = ['--data', join(folder, 'data')]
    const ask = (purpose: string) => hub('project', purpose, '--project-id', 'shpo', '--name', 'ci', ...data)
    assert.equal((await ask('devkey')).code, 1)
    assert.equal(existsSync(join(folder, 'data')), false)
    assert.equal((await hub('project', 'publish', ...sealing, ...data)).code, 0)
    for (const purpose of ['devkey', 'credential']) {
      const { code, stdout, stderr } = await ask(purpose)
      assert.deepEqual([code, stdout], [1, ''])
      assert.match(stderr, /^[^\n]*"shpo"[^\n]*\n$/)
    }
    assert.doesNotMatch((await hub('project', 'keys', ...data)).stdout, /shpo/)
  })

  it('refuses a private key in place of the public one', async t => {
    const { folder, key, sealing } = await prepare(t)
    const out = join(folder, 'shop.sealed')
    await hub('project', 'seal', ...sealing, '--out', out)
    const release = JSON.parse(readFileSync(`${out}.release.json`, 'utf8'))
    const pem = readFileSync(key, 'utf8')
    writeFileSync(`${out}.release.json`, JSON.stringify({ ...release, signer_public_key: pem }))
    const ended = await hub('project', 'publish', '--sealed', out, '--data', join(folder, 'data'))
    assert.equal(ended.code, 1)
    assert.match(ended.stderr, /private key/)
    assert.ok(!ended.stderr.includes(pem.split('\n')[1] ?? ''), ended.stderr)
  })

  it('says how to create a missing signing key, and where to write one', async t => {
    const { folder, sealing } = await prepare(t)
    const missing = await hub('project', 'seal', ...sealing, '--signing-key', join(folder, 'missing.pem'))
    assert.match(missing.stderr, /^[^\n]*missing\.pem[^\n]*project keygen[^\n]*\n$/)
    const nowhere = await hub('project', 'keygen', '--out', join(folder, 'missing/key.pem'))
    assert.equal(nowhere.code, 1)
    assert.match(nowhere.stderr, /^The file [^\n]*--out[^\n]*\n$/)
  })

  for (const args of [
    [],
    ['bogus'],
    ['keygen'],
    ['keygen', '--out', 'x', '--bits', '4096'],
    ['seal'],
    ['seal', '--source', '.', '--project-id', 'p'],
    ['seal', '--source', '/', '--project-id', 'p', '--version', '1.0.0', '--dek', 'x'],
    ['publish'],
    ['publish', '--sealed', 'x', '--source', '.'],
    ['create'],
    ['devkey', '--name', 'ci'],
    ['credential', '--publish', '--project-id', 'shop', '--name', 'x'],
    ['credential', '--project-id', 'shop'],
    ['revoke'],
    ['revoke', 'x', '--project-id', 'shop'],
    ['revoke', '--version', '1.0.0'],
  ]) {
    it(`exits with 2 and one sentence for "project ${args.join(' ')}"`, async () => {
      const ended = await hub('project', ...args)
      assert.equal(ended.code, 2)
      assert.equal(ended.stderr.trim().split('\n').length, 1)
      assert.equal(ended.stdout, '')
    })
  }

  for (const [name, change] of [
    ['a project other than the one in the plan', ['--project-id', 'store']],
    ['a file that is not a key', ['--signing-key', import.meta.filename]],
    ['a folder that is not a project', ['--source', import.meta.dirname]],
    ['a missing key', ['--signing-key', '/missing']],
  ] as const) {
    it(`exits with 1 and one sentence for ${name}`, async t => {
      const { folder, sealing } = await prepare(t)
      const ended = await hub('project', 'publish', ...sealing, ...change, '--data', join(folder, 'data'))
      assert.equal(ended.code, 1)
      assert.equal(ended.stderr.trim().split('\n').length, 1)
      assert.equal(existsSync(join(folder, 'data')), false)
    })
  }
})

/**
 * Creates a signing key, and a source folder that contains a secret. Returns their paths and the options to seal the
 * source.
 */
async function prepare(t: TestContext) {
  const [folder, source] = [newFolder(t), newShop(t, { 'plugins/cart/.env': 'S=1' })]
  const key = join(folder, 'signing.pem')
  const publicKey = (await hub('project', 'keygen', '--out', key)).stdout.trim()
  const sealing = ['--source', source, '--version', '1.0.0', '--signing-key', key]
  return { folder, source, key, publicKey, sealing }
}

async function issued(purpose: 'devkey' | 'credential', data: string[]): Promise<string> {
  const ended = await hub('project', purpose, '--project-id', 'shop', '--name', 'ci', ...data)
  assert.match(ended.stdout, /^(devkey|deploy)_[\w-]{43}\n$/)
  return ended.stdout.trim()
}

async function readDescriptor(running: HubUnderTest, token: string) {
  const response = await running.call('/v1/projects/shop/artifacts/1.0.0', { bearer: token })
  return (await response.json()) as { signature: string; signer_public_key: string }
}
