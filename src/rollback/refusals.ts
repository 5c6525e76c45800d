import { ConfigError, type DeployError, DeploymentError } from '../core/errors.ts'
import { cleanForeignText, listNames } from '../core/text.ts'
import { type Place, placeName, placeOf } from '../install/host/layout.ts'
import type { InstalledRow, SnapshotRow } from '../install/host/rows.ts'
import type { KnownRow, RollbackSubject } from './deployment.ts'

/**
 * DeploymentError `no_snapshot` for a subject that is not installed. Names what this host has under that id or slug, and
 * the inputs that name it.
 */
export function notInstalled(subject: RollbackSubject, installed: readonly InstalledRow[]): DeploymentError {
  const [name, inputs] =
    subject.contract === 'project'
      ? [`The project ${subject.projectId}`, 'project-id']
      : [placeName(placeOf(subject)), 'kind, id']
  return new DeploymentError(
    'no_snapshot',
    `${name} is not installed, according to the record of this host (installed.json), so it cannot be rolled back: nothing was changed. ${describeLikely(subject, installed) ?? `Check ${inputs} and project-root.`}`,
  )
}

/** Names the part that the operator probably means: one with the same id on the other shelf, or else with that slug. */
function describeLikely(subject: RollbackSubject, installed: readonly InstalledRow[]): string | undefined {
  if (subject.contract === 'project') return undefined
  const { id } = subject
  const likely = installed.find(row => row.id === id) ?? installed.find(({ slug }) => slug === id)
  if (likely === undefined) return undefined
  const place = placeOf(likely)
  const kind = place.shelf === 'plugins' ? 'plugin' : 'service'
  if (likely.contract === 'project')
    return `${placeName(place)} is installed, as a part of the project ${likely.slug}: set project-id: ${likely.slug} instead of id.`
  const changes = [
    ...(kind === subject.kind ? [] : [`kind: ${kind}`]),
    ...(likely.id === id ? [] : [`id: ${likely.id}`]),
  ]
  return `The ${kind} ${likely.slug} is installed, as ${placeName(place)}: set ${changes.join(' and ')}.`
}

/** DeploymentError `no_snapshot` for a part; the message lists the versions that could be restored. */
export function noSnapshot(
  row: KnownRow,
  { toVersion, known }: { readonly toVersion: string | undefined; readonly known: readonly SnapshotRow[] },
): DeploymentError {
  const earlier = ` that is known to be unmodified and was installed before ${('version' in row && row.version) || 'the current version'}`
  const asked = toVersion === undefined ? earlier : ` ${toVersion}`
  const none = `This host has no snapshot of ${placeName(placeOf(row))}`
  const [recorded, unrecorded] = [known.filter(isRecorded), known.filter(row => !isRecorded(row))]
  const versions = [...new Set(recorded.map(describeSnapshot))]
  const these =
    versions.length === 1
      ? 'this version, even if it is later than the installed one'
      : 'one of these, even a later one'
  if (versions.length === 0 && unrecorded.length > 0)
    return new DeploymentError(
      'no_snapshot',
      `${none} that it can restore: nothing was changed. Snapshot ${listNames(unrecorded.map(({ name }) => name))} has no record of its files, because another program installed them: deploy a version from the hub, or move that directory into place by hand once you know what it contains.`,
    )
  return new DeploymentError(
    'no_snapshot',
    known.length === 0
      ? `${none}: nothing was changed. Deploy a version from the hub.`
      : `${none}${asked}: nothing was changed. The host has ${listNames(versions)}. To restore ${these}, name it in to-version, or deploy it from the hub.`,
  )
}

/** DeploymentError `no_snapshot` for a project; the message lists the versions that could be restored. */
export function noProjectVersion(
  slug: string,
  { toVersion, known }: { readonly toVersion: string | undefined; readonly known: readonly string[] },
): DeploymentError {
  const ofProject = `of the project ${slug}`
  const asked =
    toVersion === undefined
      ? `no version ${ofProject} that was first installed before the current one`
      : `no version ${toVersion} ${ofProject}`
  const found = describeKnown(known)
  return new DeploymentError('no_snapshot', `This host has retained ${asked}: nothing was changed. ${found}`)
}

function describeKnown(known: readonly string[]): string {
  if (known.length === 0)
    return 'This host does not know which parts the earlier versions had: deploy a version from the hub.'
  if (known.length === 1)
    return `This host knows only ${listNames(known)}, which is installed: deploy another version from the hub.`
  return `This host knows ${listNames(known)}. Name one of these in to-version, or deploy a version from the hub.`
}

/** DeploymentError `no_snapshot` for versions of a project whose parts are not all on this host, unmodified. */
export function missingParts(slug: string, lacking: readonly string[]): DeploymentError {
  return new DeploymentError(
    'no_snapshot',
    `This host cannot restore the project ${slug}, because parts of its versions are missing or were changed here: ${lacking.join('; ')}. Nothing was changed. Name another version in to-version, or deploy a version from the hub.`,
  )
}

/** DeploymentError `snapshot_modified` for a snapshot without a record to compare it with. */
export function unrecorded(path: string): DeploymentError {
  return new DeploymentError(
    'snapshot_modified',
    `${path} has no record of its files, so it is unknown whether they were changed: the rollback changed nothing. Name another version in to-version, or deploy this version from the hub. If the hub does not have it, move this directory into place by hand once you know what it contains.`,
  )
}

/** DeploymentError `snapshot_modified` for a snapshot whose record is damaged. */
export function damagedRecord(path: string, damage: string): DeploymentError {
  return new DeploymentError(
    'snapshot_modified',
    `The record of the files of ${path} is damaged (${damage}), so it is unknown whether these files were changed: the rollback changed nothing. Name another version in to-version, or deploy this version from the hub.`,
  )
}

/** DeploymentError `snapshot_modified` for a snapshot that differs from its record. */
export function modifiedSnapshot(path: string, finding: string): DeploymentError {
  return new DeploymentError(
    'snapshot_modified',
    `${path} was changed after it had become a snapshot (${finding}): the rollback changed nothing. Find out what changed the snapshot. Name another version in to-version, or deploy this version from the hub.`,
  )
}

/** DeploymentError `inconsistent` for a row that names a different version than the files. */
export function otherVersion(
  record: string,
  { root, recorded, found }: { readonly root: string; readonly recorded: string; readonly found: string },
): DeploymentError {
  return new DeploymentError(
    'inconsistent',
    `${record} says that ${root} is version ${recorded}, but its plugin.yaml says "${cleanForeignText(found, 60)}": nothing was changed. Restore installed.json from a backup, or deploy the version from the hub.`,
  )
}

/**
 * Refuses a part of a project (DeploymentError `place_taken`), and a part whose slug is not the requested one
 * (ConfigError `invalid_input`).
 */
export function requireOwnPart(row: KnownRow, { place, slug }: { place: Place; slug: string | null }): void {
  if (row.contract === 'project') throw ofProject(place, row.slug)
  if (slug !== null && slug !== row.slug) throw otherSlug(place, { slug, installed: row.slug })
}

function ofProject(place: Place, slug: string): DeployError {
  return new DeploymentError(
    'place_taken',
    `${placeName(place)} belongs to the project ${slug}, whose parts are rolled back only together: nothing was changed. Set project-id: ${slug} instead of id.`,
  )
}

function otherSlug(place: Place, names: { slug: string; installed: string }): DeployError {
  return new ConfigError(
    'invalid_input',
    `slug is ${names.slug}, but ${placeName(place)} was installed from the slug ${names.installed}: nothing was changed. Correct slug in the step's "with:".`,
  )
}

/** True for a snapshot that can be compared with a record, which a rollback requires. */
function isRecorded({ tree_digest: digest }: SnapshotRow): boolean {
  return digest !== null
}

function describeSnapshot({ version, modified }: SnapshotRow): string {
  return `${version ?? 'an unknown version'}${modified ? ' (modified)' : ''}`
}
