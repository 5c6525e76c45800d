import type { Installation } from '../../host/installed/host-record.ts'
import type { InstallOrder } from '../../steps/step-context.ts'
import type { TerminalState } from '../deployment.ts'
import type { HostSession } from './session.ts'

/** A contract's part of a deployment, in phases. Each phase takes what an earlier phase returned. */
export interface Flow<Checked, Fetched extends FetchedFiles> {
  /** Refuses a deployment because of the operator's own files. */
  check(): Promise<Checked>
  /**
   * Refuses a deployment because of the host, whether or not the host is locked. `prepare` checks again whatever
   * passes.
   */
  survey(checked: Checked): Promise<void>
  /**
   * Fetches and verifies the artifact. Changes nothing below the project root, because another run may have locked the
   * host meanwhile.
   */
  fetch(checked: Checked): Promise<Fetched>
  /** Turns the verified artifact into staged parts. Changes nothing but `folder`, which exists and is private. */
  prepare(fetched: Fetched, folder: string): Promise<InstallOrder>
  /** Runs the plan; makes every change through the session's transaction. Returns what to commit. */
  install(order: InstallOrder, session: HostSession): Promise<Installation>
  /** Enters the final state. */
  end(state: TerminalState): Promise<void>
}

/** The files that a fetch has opened. */
export interface FetchedFiles {
  /** Closes the files. May be called more than once. */
  close(): void
}
