import type { DeployError, ErrorCode } from '../../core/errors.ts'

/**
 * Returns advice about an error, in a sentence or two. The error's message comes first and names the remedy; the advice
 * adds what the message leaves out. docs/errors.md explains each code in full.
 */
export function nextStep(code: ErrorCode, error: DeployError | undefined): string {
  const known = NEXT[code]
  return error?.code === code && error.next !== undefined ? `${error.next}. ${known}` : known
}

const UNTIL_CORRECTED = 'Until the problem is corrected, you can deploy an earlier version: set `version` to it.'

const NEXT: Readonly<Record<ErrorCode, string>> = {
  missing_input:
    'If a secret is empty: a job gets the secrets of an environment only if it names that environment, and a pull request from a fork gets none.',
  invalid_input: "The action's README says what each input accepts.",
  invalid_plan: 'Correct every problem that is named here.',
  invalid_host_config: 'Correct every problem that is named here.',
  network: "Try `curl -v` with that URL as the runner's user: it shows how far a connection gets.",
  timeout: 'Run again later. For a large artifact, raise `timeout-minutes`.',
  bad_response: "A proxy or a login page may answer in the hub's place: `curl -i` with that URL shows what answers.",
  insecure_url:
    "Use https; `allow-http` is for closed test networks. If the hub supplied the URL, the hub's administrator must correct it.",
  not_found: 'If the hub serves its routes below a path, the URL of the hub must include that path.',
  authentication_failed: 'If a key, credential or token was revoked, get a new one and store it in the secret.',
  no_published_version: 'If no version is published, ask the publisher whether one is held back or withdrawn.',
  artifact_unavailable:
    'After HTTP 429 or 5xx, run again later. If the remedy above does not help, ask the administrator of the hub.',
  missing_signature: 'Do not work around this check: install only signed versions.',
  invalid_signature_format: 'Do not work around this check: install only signed versions.',
  signature_mismatch: 'Do not deploy this version until you know the cause.',
  digest_mismatch: 'The release gate or the publisher knows which digest is the right one.',
  untrusted_signer: 'Ask through a channel other than the hub, and deploy nothing until you have the answer.',
  decryption_failed: 'If the remedy above does not help, ask the administrator of the hub.',
  invalid_archive: 'If the new archive is refused too, the publisher should pack it with another tool.',
  unsafe_archive: 'Do not install this version; ask the publisher why it contains such an entry.',
  archive_too_large: 'If the archive is not meant to be that large, ask the publisher what it contains.',
  empty_artifact: UNTIL_CORRECTED,
  not_a_plugin: UNTIL_CORRECTED,
  invalid_manifest: UNTIL_CORRECTED,
  content_mismatch: UNTIL_CORRECTED,
  source_not_supported: 'Only a project with parts from git needs git on the host.',
  unpinned_source: UNTIL_CORRECTED,
  version_mismatch: UNTIL_CORRECTED,
  downgrade_refused: 'If nobody rolled back on purpose, ask the publisher which of the two versions is newer.',
  version_reused: 'The publisher should release changed bytes as a new version.',
  disk_full:
    'If the disk of `project-root` is full, lower `keep-snapshots`, so that fewer old versions are kept there.',
  host_not_writable: 'Correct the cause, then run again.',
  unsafe_host:
    'See docs/security.md, "Who may write to the project root", or, if a path cannot be moved, docs/operating.md, "Mounts and permissions".',
  locked: 'If that deployment never ends, see docs/operating.md, "The lock is held".',
  step_failed: 'Correct the cause, then run again.',
  step_timed_out:
    'Find out what the command is waiting for. If a command of the host config needs more time, raise its `timeout` there.',
  unhealthy: 'Correct the version, the service or its health check, then run again.',
  cancelled: 'Run again when you want to.',
  interrupted: 'Find out what killed the run (a lack of memory, a reboot or a time limit), then run again.',
  report_refused: 'Nothing to repair on this host.',
  rollback_failed:
    'Follow docs/operating.md, "The host is inconsistent", which says when the next run tries the rollback again.',
  inconsistent: 'Follow docs/operating.md, "The host is inconsistent". Nothing is deployed until the host is repaired.',
  place_taken: 'The status action lists the parts of this host, and the directories that have no record.',
  unexpected_part: UNTIL_CORRECTED,
  fleet_out_of_sync: 'If hosts are listed below, begin with those at the top.',
  drift_found:
    'If files were changed, find out who changed them. Deploying the version again repairs them; the changed files stay as a snapshot.',
  no_snapshot: 'The status action lists the versions that this host has retained.',
  snapshot_modified: 'The status action lists the other versions that this host has retained.',
  not_installed: 'The status action shows what is installed, and which files differ.',
  internal_error: 'Report this error, with the log of this step.',
}
