import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { mountServed, unmountServed, whyNoFuse } from './fuse.ts'
import { whyNoMounting } from './mounts.ts'

/** A mounted file system that ignores the case and the Unicode form of names. */
interface FoldingDisk {
  readonly mounted: string
  /** The folder with the files. There, each spelling is a name of its own. */
  readonly files: string
}

/** The reason why no such file system can be mounted here, for a test's `skip`; false if one can. */
export function whyNoFoldingDisk(): string | false {
  return whyNoMounting() || whyNoFuse()
}

/** Mounts an empty file system until the test ends. */
export function mountFoldingDisk(t: TestContext): FoldingDisk {
  const top = mkdtempSync(join(tmpdir(), 'folding-'))
  const [files, mounted] = [join(top, 'files'), join(top, 'mounted')]
  for (const path of [files, mounted]) mkdirSync(path)
  const program = [join(import.meta.dirname, 'folding-disk-server.ts'), files]
  const served = mountServed(program, mounted, 'rootmode=40755,allow_other,default_permissions')
  t.after(async () => {
    await unmountServed(served)
    rmSync(top, { recursive: true })
  })
  return { mounted, files }
}
