import assert from 'node:assert/strict'
import {
  chmodSync,
  chownSync,
  lchownSync,
  linkSync,
  mkdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { type Layout, layoutOf } from '../../../src/install/host/layout.ts'
import { requireSafeHost, UntouchableHostError } from '../../../src/install/host/ownership.ts'
import { prepareHost } from '../../../src/install/host/readiness.ts'
import { listTree, temporaryDirectory, writeTree } from '../../folders.ts'
import { collectLog } from '../prepared-host.ts'

const STRANGER = 54_321
const skip = process.getuid?.() === 0 ? false : 'only root can give files to another user'

/** A project root, in a new folder, with files and folders as deployments create them. */
async function deployedHost(t: TestContext): Promise<Layout> {
  const folder = temporaryDirectory(t)
  const layout = layoutOf(join(folder, 'app'))
  mkdirSync(layout.root, { mode: 0o755 })
  await prepareHost({ layout, sharedRoot: { isAllowed: false } }, collectLog())
  writeTree(layout.root, { 'plugins/greeter/a': '', 'extensions/clock/a': '' })
  writeTree(layout.own, {
    'journal.jsonl': '{"record":"begin"}\n',
    'installed.json': '{}',
    'audit.jsonl': '',
    'snapshots/plugins/greeter/1-1.0.0/a': '',
    'snapshots/set-aside/1-a': '',
    'staging/d/replaced/a': '',
    'trees/ab.json': '{}',
    'reports/r.json': '{}',
    'outbox/o.json': '{}',
  })
  return layout
}

function give(path: string): void {
  lchownSync(path, STRANGER, STRANGER)
}

/** Renames a file or folder, and replaces it with a symlink to its new name. */
function turnIntoSymlink(path: string): void {
  renameSync(path, `${path}-real`)
  symlinkSync(`${path}-real`, path)
}

interface Strange {
  change: (layout: Layout) => void
  /** A pattern that the message must match. */
  says: RegExp
}

function assertUntouchable(layout: Layout, { allowSharedRoot, says }: { allowSharedRoot: boolean; says: RegExp }) {
  const before = listTree(dirname(layout.root))
  assert.throws(
    () => requireSafeHost({ layout, sharedRoot: { isAllowed: allowSharedRoot } }),
    (error: unknown) => {
      assert.ok(error instanceof UntouchableHostError && error.code === 'unsafe_host', String(error))
      assert.match(error.message, says)
      return true
    },
  )
  assert.deepEqual(listTree(dirname(layout.root)), before)
}

describe('requireSafeHost', () => {
  it('accepts a host after a deployment, and a host without any file', async t => {
    const layout = await deployedHost(t)
    assert.deepEqual(requireSafeHost({ layout, sharedRoot: { isAllowed: false } }), [])
    assert.deepEqual(
      requireSafeHost({ layout: layoutOf(join(layout.root, 'none')), sharedRoot: { isAllowed: false } }),
      [],
    )
  })

  const harmless: Record<string, (layout: Layout) => void> = {
    'a root that others can read': ({ root }) => chmodSync(root, 0o2755),
    'a parent that everyone can write, but with the sticky bit': ({ root }) => chmodSync(dirname(root), 0o1777),
    'a shelf that is a symlink of ours': ({ root }) => turnIntoSymlink(join(root, 'plugins')),
    'a root that is a symlink of ours': ({ root }) => turnIntoSymlink(root),
    'a shelf that is missing': ({ root }) => rmSync(join(root, 'plugins'), { recursive: true }),
    'a folder of our own that inherited the set-group-id bit': ({ own }) => chmodSync(own, 0o2700),
    'two hard links to one file, both ours': ({ own }) =>
      linkSync(join(own, 'outbox/o.json'), join(own, 'outbox/o.json.1.tmp')),
  }
  for (const [name, change] of Object.entries(harmless)) {
    it(`accepts ${name}`, async t => {
      const layout = await deployedHost(t)
      change(layout)
      assert.deepEqual(requireSafeHost({ layout, sharedRoot: { isAllowed: false } }), [])
    })
  }

  const foreign: Record<string, (layout: Layout) => void> = {
    'an installed tree of another user': ({ root }) => give(join(root, 'plugins/greeter')),
    'a snapshot of a tree of another user': ({ own }) => give(join(own, 'snapshots/plugins/greeter/1-1.0.0')),
    'a staged tree of another user': ({ own }) => give(join(own, 'staging/d/replaced')),
    'a tree of another user that was set aside': ({ own }) => give(join(own, 'snapshots/set-aside/1-a')),
  }
  for (const [name, change] of Object.entries(foreign)) {
    it(`accepts ${name}`, { skip }, async t => {
      const layout = await deployedHost(t)
      change(layout)
      assert.deepEqual(requireSafeHost({ layout, sharedRoot: { isAllowed: false } }), [])
    })
  }

  const shared: Record<string, Strange> = {
    'a root that its group can write to': {
      change: ({ root }) => chmodSync(root, 0o2775),
      says: /group .*chmod go-w .*app/,
    },
    'a root that everyone can write': { change: ({ root }) => chmodSync(root, 0o777), says: /every user.*chmod go-w/ },
    'a root where everyone can add something': {
      change: ({ root }) => chmodSync(root, 0o1777),
      says: /every user.*app is meant for all users, so use a directory below it/,
    },
    'a shelf where everyone can add something': {
      change: ({ root }) => chmodSync(join(root, 'plugins'), 0o1777),
      says: /every user.*: run chmod go-w .*app\/plugins, or set/,
    },
    'a shelf where everyone can add something, below a symlinked root': {
      change({ root }) {
        chmodSync(join(root, 'plugins'), 0o1777)
        turnIntoSymlink(root)
      },
      says: /every user.*: run chmod go-w .*app-real\/plugins, or set/,
    },
    'a symlinked shelf whose target is meant for all users': {
      change({ root }) {
        mkdirSync(join(dirname(root), 'public'))
        chmodSync(join(dirname(root), 'public'), 0o1777)
        rmSync(join(root, 'plugins'), { recursive: true })
        symlinkSync('../public', join(root, 'plugins'))
      },
      says: /every user.*public is meant for all users, so use a directory below it/,
    },
    'a shelf that its group can write to': {
      change: ({ root }) => chmodSync(join(root, 'extensions'), 0o775),
      says: /app\/extensions .*group.*chmod go-w/,
    },
    'a parent in which everyone can replace the root': {
      change: ({ root }) => chmodSync(dirname(root), 0o777),
      says: /every user/,
    },
    'a missing root that everyone could create': {
      change({ root }) {
        rmSync(root, { recursive: true })
        chmodSync(dirname(root), 0o777)
      },
      says: /every user/,
    },
    'a symlinked shelf whose target everyone can write': {
      change({ root }) {
        turnIntoSymlink(join(root, 'plugins'))
        chmodSync(join(root, 'plugins-real'), 0o777)
      },
      says: /plugins-real .*every user/,
    },
    'a symlinked shelf whose target everyone can replace': {
      change({ root }) {
        mkdirSync(join(root, 'disk/plugins'), { recursive: true })
        chmodSync(join(root, 'disk'), 0o777)
        rmSync(join(root, 'plugins'), { recursive: true })
        symlinkSync('disk/plugins', join(root, 'plugins'))
      },
      says: /disk .*every user/,
    },
  }
  const owned: Record<string, Strange> = {
    'a root of another user': { change: ({ root }) => give(root), says: /user 54321.*chown -h 0 .*app/ },
    'a shelf of another user': {
      change: ({ root }) => give(join(root, 'plugins')),
      says: /plugins.*user 54321.*chown/,
    },
    'a parent of another user': { change: ({ root }) => give(dirname(root)), says: /user 54321.*chown/ },
    'a sticky parent of another user': {
      change({ root }) {
        give(dirname(root))
        chmodSync(dirname(root), 0o1755)
      },
      says: /user 54321.*chown/,
    },
    'a root that is a symlink of another user': {
      change({ root }) {
        turnIntoSymlink(root)
        give(root)
      },
      says: /user 54321.*chown -h/,
    },
  }
  for (const [cases, options] of [
    [shared, {}],
    [owned, { skip }],
  ] as const) {
    for (const [name, { change, says }] of Object.entries(cases)) {
      it(`refuses ${name}, unless the operator accepts it`, options, async t => {
        const layout = await deployedHost(t)
        change(layout)
        assertUntouchable(layout, { allowSharedRoot: false, says })
        assertUntouchable(layout, { allowSharedRoot: false, says: /allow-shared-root/ })
        const [warning, ...more] = requireSafeHost({ layout, sharedRoot: { isAllowed: true } })
        assert.match(warning ?? '', /can be written or replaced by .*allow-shared-root/)
        assert.deepEqual(more, [])
      })
    }
  }

  it('names the option by which a program accepts such a host', async t => {
    const layout = await deployedHost(t)
    chmodSync(layout.root, 0o777)
    const option = '--accept-others'
    const [warning] = requireSafeHost({ layout, sharedRoot: { isAllowed: true, option } })
    assert.match(warning ?? '', /\. --accept-others accepts that, so /)
    assert.throws(
      () => requireSafeHost({ layout, sharedRoot: { isAllowed: false, option } }),
      /or set --accept-others /,
    )
  })

  const never: Record<string, Strange> = {
    'a folder of our own that others can read': {
      change: ({ own }) => chmodSync(own, 0o755),
      says: /0755.*chmod -R go-w.*lsof \+D.*journal\.jsonl.*chmod 700/,
    },
    'a folder of our own that its group can enter': { change: ({ own }) => chmodSync(own, 0o710), says: /0710/ },
    'a file in place of our own folder': {
      change({ own }) {
        rmSync(own, { recursive: true })
        writeFileSync(own, '')
      },
      says: /is a file/,
    },
    'a symlink in place of our own folder': { change: ({ own }) => turnIntoSymlink(own), says: /is a symlink/ },
    'a dangling symlink in place of our own folder': {
      change({ own }) {
        rmSync(own, { recursive: true })
        symlinkSync('gone', own)
      },
      says: /is a symlink/,
    },
    'a journal that others could write': {
      change: ({ journal }) => chmodSync(journal, 0o666),
      says: /journal\.jsonl can be written by group .*every user.*lsof \+D.*chmod -R go-w/,
    },
    'a staging folder that others could write': { change: ({ staging }) => chmodSync(staging, 0o770), says: /staging/ },
    'a snapshot folder that others could write': {
      change: ({ snapshots }) => chmodSync(join(snapshots, 'plugins/greeter'), 0o777),
      says: /greeter/,
    },
    'a record with a hard link elsewhere': {
      change: ({ own, root }) => linkSync(join(own, 'audit.jsonl'), join(dirname(root), 'stolen')),
      says: /audit\.jsonl is a file that has another name elsewhere/,
    },
  }
  for (const name of [
    'lock',
    'journal',
    'installed',
    'staging',
    'trash',
    'snapshots',
    'trees',
    'reports',
    'outbox',
  ] as const) {
    never[`a symlink in the place of ${name}`] = {
      change(layout) {
        if (name === 'lock') writeFileSync(layout.lock, '{}')
        renameSync(layout[name], join(dirname(layout.root), 'elsewhere'))
        symlinkSync(join(dirname(layout.root), 'elsewhere'), layout[name])
      },
      says: /is a symlink/,
    }
  }
  for (const path of [
    'audit.jsonl',
    'reserve',
    'anything',
    'trees/cd.json',
    'outbox/p.json',
    'reports/s.json',
    'snapshots/plugins/x',
    'snapshots/other',
  ]) {
    never[`a symlink at ${path}`] = {
      change({ own }) {
        rmSync(join(own, path), { force: true })
        symlinkSync('/etc/hostname', join(own, path))
      },
      says: /is a symlink/,
    }
  }
  const neverOwned: Record<string, Strange> = {
    'a folder of our own that belongs to another user': { change: ({ own }) => give(own), says: /user 54321/ },
    'a shelf that is a symlink of another user': {
      change({ root }) {
        turnIntoSymlink(join(root, 'plugins'))
        give(join(root, 'plugins'))
      },
      says: /plugins.*user 54321.*chown -h/,
    },
  }
  for (const path of [
    'journal.jsonl',
    'installed.json',
    'staging',
    'trees/ab.json',
    'outbox/o.json',
    'snapshots/plugins/greeter',
  ]) {
    neverOwned[`another user's ${path} in a folder of our own`] = {
      change: ({ own }) => give(join(own, path)),
      says: /user 54321/,
    }
  }
  for (const [cases, options] of [
    [never, {}],
    [neverOwned, { skip }],
  ] as const) {
    for (const [name, { change, says }] of Object.entries(cases)) {
      it(`refuses ${name}, whatever the operator accepts`, options, async t => {
        const layout = await deployedHost(t)
        change(layout)
        for (const allowSharedRoot of [false, true]) assertUntouchable(layout, { allowSharedRoot, says })
      })
    }
  }

  it('names the root rather than our own folder if both are unsafe', { skip }, async t => {
    const layout = await deployedHost(t)
    chownSync(layout.root, STRANGER, 0)
    chmodSync(layout.own, 0o777)
    assertUntouchable(layout, { allowSharedRoot: false, says: /chown -h 0/ })
    assertUntouchable(layout, { allowSharedRoot: true, says: /chmod 700/ })
  })
})
