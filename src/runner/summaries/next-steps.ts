import type { DeployError, ErrorCode } from '../../core/errors.ts'

/** What to do about an error, in a sentence or two; docs/errors.md has the whole story of each code. */
export function nextStep(code: ErrorCode, error: DeployError | undefined): string {
  const known = NEXT[code]
  return error?.code === code && error.next !== undefined ? `${error.next}. ${known}` : known
}

const NEXT: Readonly<Record<ErrorCode, string>> = {
  missing_input:
    'Set the inputs named above. An empty secret may be one that this environment or workflow cannot read.',
  invalid_input: 'Correct the inputs named above and run again.',
  invalid_plan: 'Fix every line that is named here.',
  invalid_host_config: 'Fix every line that is named here.',
  network: 'Check the URL, DNS, proxy and firewall of this runner; then run again.',
  timeout: 'Check the hub and the network. For a large artifact, raise `timeout-minutes`.',
  bad_response: 'Check `hub-url` and any proxy in between; otherwise ask the administrator of the hub.',
  insecure_url: 'Use https. `allow-http` is for closed test networks.',
  not_found: 'Check `slug` and `kind` (or `project-id`), `version`, and the path in `hub-url`.',
  authentication_failed:
    'Check that the key is current, not revoked, and made for exactly this plugin, service or project.',
  no_published_version: 'Publish a version, or name one in `version`.',
  artifact_unavailable: 'The hub gave the reason above. After HTTP 429 or 5xx, run again later.',
  missing_signature: 'Ask the publisher to sign this version. Do not work around it.',
  invalid_signature_format: 'Ask the publisher to sign this version again. Do not work around it.',
  signature_mismatch:
    'Compare `signing-secret` (for a project, `signer-public-key`) with what the hub signs with now. If they are the same, the bytes were changed: do not deploy until you know how.',
  digest_mismatch: 'Find out why the hub serves other bytes than the pinned ones. Change the pin only if you know.',
  untrusted_signer:
    'Ask the publisher, not the hub, whether the key was changed. Pin the new one only if they confirm it.',
  decryption_failed:
    'Ask the publisher to publish the version again; if that does not help, ask the administrator of the hub.',
  invalid_archive: 'Ask the publisher to pack and publish this version again.',
  unsafe_archive: 'Do not install this version; ask the publisher why it contains that.',
  archive_too_large: 'If this size is intended, raise the limit named above.',
  empty_artifact: 'Ask the publisher for a version that contains files.',
  not_a_plugin: 'For a service, set `kind: service`; otherwise the publisher has to fix `plugin.yaml`.',
  invalid_manifest: 'Ask the publisher to fix it and publish again.',
  content_mismatch: 'Ask the publisher to check the files and publish again.',
  source_not_supported: 'Install git 2.37 or newer on this host, or have the publisher include the part.',
  unpinned_source: 'Ask the publisher to name a full commit id and seal the project again.',
  version_mismatch: 'Have the publisher or the hub correct the version, or name another one in `version`.',
  downgrade_refused: 'If you want this version, name it in `version`, or set `allow-downgrade: true`.',
  version_reused:
    'Ask the publisher why one version has two contents. To accept the new bytes, pin them in `artifact-sha256` and set `redeploy: true`.',
  disk_full: 'Free some space on this host, then run again.',
  host_not_writable: 'Correct owner, modes or mounts as named above.',
  unsafe_host: 'Correct what is named above, so that no other user can decide what runs here.',
  locked: 'Wait for the other deployment or cancel it, then run again.',
  step_failed: 'The message has the beginning of its output. Correct the cause, then run again.',
  step_timed_out: 'Find out what the command waits for, or raise its `timeout` in the host config.',
  unhealthy: 'Correct the version, or its check in the host config, then deploy again.',
  cancelled: 'Run again when you want to.',
  interrupted: 'Find out who killed the run (memory, a reboot, a time limit), then run again.',
  report_refused: 'Nothing to repair on this host. The next run sends the report again.',
  rollback_failed: 'Follow docs/operating.md, "The host is inconsistent". The next run tries again first.',
  inconsistent: 'Follow docs/operating.md, "The host is inconsistent". Nothing is deployed until then.',
  place_taken: 'Check the id in the plan. Move away what is in that place, or remove it if nobody needs it.',
  unexpected_part: 'Ask the publisher why. If you expect this part, add it to `project-ids`.',
  fleet_out_of_sync:
    'Begin with the hosts at the top of this table; a `matrix` can take them from the output `outdated`.',
  drift_found:
    'Find out who changed these files. Deploy the version again to repair them; the changes stay as a snapshot.',
  no_snapshot: 'Name a retained version in `to-version`, or deploy the version from the hub.',
  snapshot_modified: 'Find out what changed it. Name another version, or deploy this one from the hub.',
  not_installed: 'Find out who replaced or changed it. To install it, deploy without `check-only`.',
  internal_error: 'Report it, with the log of this step.',
}
