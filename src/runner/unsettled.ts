/**
 * Runs `act`. Calls `fail` when the process would exit before that has ended, because nothing is left that could wake it.
 */
export async function runOrFail(act: () => Promise<void>, fail: () => void): Promise<void> {
  process.once('beforeExit', fail)
  try {
    await act()
  } finally {
    process.off('beforeExit', fail)
  }
}
