import type { Origin, RemovedRow, SnapshotRow } from './rows.ts'

/** True if a row is from this origin. */
export function isFrom({ contract, slug }: Origin, origin: Origin): boolean {
  return contract === origin.contract && slug === origin.slug
}

/** Returns the snapshots in a row that are from this origin, even if the row is now from another origin. */
export function snapshotsFrom(row: RemovedRow, origin: Origin): SnapshotRow[] {
  return row.snapshots.filter(snapshot => isFrom(snapshot.origin ?? row, origin))
}

/** Returns the snapshots in a row, as a row of the origin `to` records them. */
export function handOver(row: RemovedRow, to: Origin): SnapshotRow[] {
  return row.snapshots.map(({ origin, ...snapshot }) => {
    const { contract, slug } = origin ?? row
    return isFrom({ contract, slug }, to) ? snapshot : { ...snapshot, origin: { contract, slug } }
  })
}
