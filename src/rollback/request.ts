import type { SourceFile } from '../core/document/source-file.ts'
import type { Kind } from '../core/identifiers.ts'
import type { HostRequest } from '../install/transaction/context.ts'

/** What is rolled back: one plugin or service, or all parts of a project. */
export type Subject =
  | { readonly contract: 'marketplace'; readonly kind: Kind; readonly id: string }
  | { readonly contract: 'project'; readonly projectId: string }

/** Everything that the operator asks for; parsed, and independent of where it was read. */
export interface RollbackRequest extends HostRequest {
  subject: Subject
  /** The marketplace's name of the plugin or service; only where the rollback is reported. */
  slug: string | undefined
  /** Undefined for the newest version whose snapshot nobody has modified. */
  toVersion: string | undefined
  plan: SourceFile | undefined
  hostConfig: SourceFile | undefined
  dryRun: boolean
}

/** A request of which some inputs are missing or malformed. */
export type IncompleteRollback = { [K in keyof RollbackRequest]: RollbackRequest[K] | undefined }
