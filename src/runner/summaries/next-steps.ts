import type { DeployError, ErrorCode } from '../../core/errors.ts'

/**
 * Advice about an error, in a sentence or two. The error's message comes first and names the remedy; this adds what the
 * message leaves out. docs/errors.md explains each code in full.
 */
export function nextStep(code: ErrorCode, error: DeployError | undefined): string {
  const known = NEXT[code]
  return error?.code === code && error.next !== undefined ? `${error.next}. ${known}` : known
}

const UNTIL_CORRECTED = 'Until it is corrected, you can deploy an earlier version: name it in `version`.'

const NEXT: Readonly<Record<ErrorCode, string>> = {
  missing_input:
    'A job gets the secrets of an environment only if it names that environment; a pull request from a fork gets none.',
  invalid_input: "The action's README says what each input accepts.",
  invalid_plan: 'Fix every line that is named here.',
  invalid_host_config: 'Fix every line that is named here.',
  network: "Try `curl -v` with that URL as the runner's user: it shows how far a connection gets.",
  timeout: 'Run again later. For a large artifact, raise `timeout-minutes`.',
  bad_response: "A proxy or a login page may answer in the hub's place: `curl -i` with that URL shows what does.",
  insecure_url: 'Use https. `allow-http` is for closed test networks.',
  not_found: 'Check `slug` and `kind` (or `project-id`), `version`, and the path in `hub-url`.',
  authentication_failed: 'If it was revoked, get a new one from the hub, and set the secret to it.',
  no_published_version: 'Ask the publisher whether a version is held back or withdrawn.',
  artifact_unavailable: 'The hub gave the reason above. After HTTP 429 or 5xx, run again later.',
  missing_signature: 'Do not work around it: install only signed versions.',
  invalid_signature_format: 'Do not work around it: install only signed versions.',
  signature_mismatch: 'Do not deploy this version until you know the cause.',
  digest_mismatch: 'The release gate or the publisher knows which digest is the right one.',
  untrusted_signer: 'Ask over a channel other than the hub, and deploy nothing until you know.',
  decryption_failed: 'If that does not help, ask the administrator of the hub.',
  invalid_archive: 'If it happens again, try another tool to pack it.',
  unsafe_archive: 'Do not install this version; ask the publisher why it contains that.',
  archive_too_large: 'If it is not meant to be, ask the publisher what it contains.',
  empty_artifact: UNTIL_CORRECTED,
  not_a_plugin: UNTIL_CORRECTED,
  invalid_manifest: UNTIL_CORRECTED,
  content_mismatch: UNTIL_CORRECTED,
  source_not_supported: 'A project without parts from git does not need it.',
  unpinned_source: UNTIL_CORRECTED,
  version_mismatch: UNTIL_CORRECTED,
  downgrade_refused: 'If nobody rolled it back on purpose, ask the publisher which of the two is newer.',
  version_reused: 'It is better if the publisher gives the new bytes their own version.',
  disk_full: 'If it is the disk of `project-root`, a lower `keep-snapshots` keeps fewer old versions there.',
  host_not_writable: "Run again when the runner's user can write there.",
  unsafe_host: 'See docs/security.md: it lists who may own and write what below `project-root`, and why.',
  locked: 'If it never ends, see docs/operating.md, "The lock is held".',
  step_failed: 'Correct the cause, then run again.',
  step_timed_out: 'Find out what the command waits for, or raise its `timeout` in the host config.',
  unhealthy: 'Correct the version, or its check in the host config, then deploy again.',
  cancelled: 'Run again when you want to.',
  interrupted: 'Find out who killed the run (memory, a reboot, a time limit), then run again.',
  report_refused: 'Nothing to repair on this host.',
  rollback_failed: 'Follow docs/operating.md, "The host is inconsistent". The next run first tries the rollback again.',
  inconsistent: 'Follow docs/operating.md, "The host is inconsistent". Nothing is deployed until then.',
  place_taken: 'If nobody needs the files in that place, move them away.',
  unexpected_part: UNTIL_CORRECTED,
  fleet_out_of_sync: 'Begin with the hosts at the top of this table.',
  drift_found:
    'Find out who changed these files. Deploy the version again to repair them; the changes stay as a snapshot.',
  no_snapshot: 'The status action lists the versions that this host has retained.',
  snapshot_modified: 'The status action lists the other versions that this host has retained.',
  not_installed: 'The status action shows what is installed, and which files differ.',
  internal_error: 'Report it, with the log of this step.',
}
