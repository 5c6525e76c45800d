import type { Installation } from '../../host/installed/host-record.ts'
import type { InstallOrder } from '../../steps/step-context.ts'
import type { TerminalState } from '../deployment.ts'
import type { HostSession } from './session.ts'

/** The phases of a deployment under one contract, or of a rollback. Each phase takes the result of an earlier one. */
export interface Flow<Checked, Fetched extends FetchedFiles> {
  /** Checks the operator's own files. Throws to refuse the deployment. */
  check(): Promise<Checked>
  /**
   * Checks the host, even while another run has locked it. Throws to refuse the deployment. `prepare` checks again
   * whatever passes.
   */
  survey(checked: Checked): Promise<void>
  /**
   * Fetches and verifies the artifact. Changes nothing below the project root, because another run may have locked the
   * host in the meantime.
   */
  fetch(checked: Checked): Promise<Fetched>
  /** Turns the fetched files into parts to install. Changes only `folder`, which exists and is private. */
  prepare(fetched: Fetched, folder: string): Promise<InstallOrder>
  /** Runs the plan and makes every change through the session's transaction. Returns the installation to commit. */
  install(order: InstallOrder, session: HostSession): Promise<Installation>
  /** Enters the final state. */
  end(state: TerminalState): Promise<void>
}

/** The files that a fetch has opened. */
export interface FetchedFiles {
  /** Closes the files. May be called more than once. */
  close(): void
}
