import type { CommandGroup } from '../command-group.ts'
import { create } from './create.ts'
import { credential, devkey } from './issue.ts'
import { keygen } from './keygen.ts'
import { keys, list, versions } from './lists.ts'
import { publish } from './publish.ts'
import { revoke } from './revoke.ts'
import { seal } from './seal.ts'

export const project: CommandGroup = {
  name: 'npm run hub -- project',
  summary: 'seals, publishes and revokes projects: sets of plugins and extensions',
  commands: { create, list, keygen, seal, publish, versions, devkey, credential, keys, revoke },
}
