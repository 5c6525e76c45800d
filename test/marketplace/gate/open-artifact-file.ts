import { tmpdir } from 'node:os'
import type { TestContext } from 'node:test'
import { openPrivateFileSync } from '../../../src/install/files/private-file.ts'
import type { ArtifactRequest } from '../../../src/marketplace/api/client.ts'

/** A request to fetch one version into a file without a name, which is closed when the test ends. */
export function artifactRequest(t: TestContext, version: string): ArtifactRequest {
  const file = openPrivateFileSync(tmpdir())
  t.after(() => file.close())
  return {
    version,
    fd: file.fd,
    maxBytes: 1024 * 1024,
    timeoutMs: 20_000,
    signingSecret: 'the developer signs with this',
    onProgress: () => {},
  }
}
