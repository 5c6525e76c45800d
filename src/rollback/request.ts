import type { SourceFile } from '../core/document/source-file.ts'
import type { Kind } from '../core/identifiers.ts'
import type { HostRequest } from '../install/transaction/context.ts'

/** The subject of a rollback: one plugin or service, or all parts of a project. */
export type Subject =
  | { readonly contract: 'marketplace'; readonly kind: Kind; readonly id: string }
  | { readonly contract: 'project'; readonly projectId: string }

/** The operator's request: parsed, and independent of where it was read. */
export interface RollbackRequest extends HostRequest {
  subject: Subject
  /** The marketplace's name of the plugin or service. Needed only if the rollback is reported. */
  slug: string | undefined
  /** Undefined for the newest unmodified version that was first installed before the current one. */
  toVersion: string | undefined
  plan: SourceFile | undefined
  dryRun: boolean
}

/** A request with inputs that may be missing or malformed. */
export type IncompleteRollback = { [K in keyof RollbackRequest]: RollbackRequest[K] | undefined }
