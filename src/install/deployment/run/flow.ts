import type { Installation } from '../../host/installed/host-record.ts'
import type { InstallOrder } from '../../steps/step-context.ts'
import type { TerminalState } from '../deployment.ts'
import type { HostSession } from './session.ts'

/** A contract's part of a deployment, phase by phase; each takes what the one before returned. */
export interface Flow<Checked, Fetched extends FetchedFiles> {
  /** Refuses what the operator's own files show. */
  check(): Promise<Checked>
  /** Refuses what the host shows. It may be locked meanwhile or not: whatever passes is judged again in `prepare`. */
  survey(checked: Checked): Promise<void>
  /** Fetches and verifies the artifact. Another run may have the host meanwhile: changes nothing of it. */
  fetch(checked: Checked): Promise<Fetched>
  /** From the verified artifact to staged parts. Changes nothing but `folder`, which exists and is private. */
  prepare(fetched: Fetched, folder: string): Promise<InstallOrder>
  /** Runs the plan; makes every change through the session's transaction. Returns what to commit. */
  install(order: InstallOrder, session: HostSession): Promise<Installation>
  /** Enters the last state. */
  end(state: TerminalState): Promise<void>
}

/** What a fetch has opened. */
export interface FetchedFiles {
  /** May be called again. */
  close(): void
}
