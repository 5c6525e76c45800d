import type { ErrorCode } from '../../../src/core/errors.ts'
import { PLUGIN_PLAN, pluginFiles, SERVICE_PLAN } from './stage.ts'
import { type Answers, answerJson, pluginZip, serveArtifact, signatureOf, switchProtocols } from './untrusted-hub.ts'

const bytes = pluginZip()
const flipped = Buffer.from(bytes).fill((bytes[40] ?? 0) ^ 1, 40, 41)
const signature = signatureOf(bytes)

/** Lies of a hub, each with the code and, unless it is `fetching`, the state of the refusal. */
export const LIES: Record<string, [Partial<Answers>, ErrorCode, string?]> = {
  'promises more than it sends': [
    { artifact: response => response.writeHead(200, { 'content-length': bytes.length + 5 }).end(bytes) },
    'network',
  ],
  'sends an encoded body': [{ artifact: serveArtifact(bytes, { 'content-encoding': 'gzip' }) }, 'bad_response'],
  'answers 204': [{ artifact: response => response.writeHead(204).end() }, 'bad_response'],
  'switches to another protocol for the record': [{ detail: switchProtocols }, 'bad_response'],
  'switches to another protocol for the artifact': [{ artifact: switchProtocols }, 'bad_response'],
  'sends no bytes': [{ artifact: serveArtifact(Buffer.alloc(0)) }, 'invalid_archive', 'extracting'],
  'sends two signatures': [
    {
      artifact: response => {
        response.setHeader('x-signature', [signatureOf(bytes), signatureOf(bytes)])
        response.end(bytes)
      },
    },
    'invalid_signature_format',
    'verifying_signature',
  ],
  'sends an HTML page instead of a JSON error': [
    {
      artifact: response =>
        response.writeHead(404, { 'content-type': 'text/html' }).end('<script>alert(1)</script>'.repeat(100)),
    },
    'not_found',
  ],
  'sends more than a mebibyte of JSON': [
    { detail: answerJson(200, { latest_version: '2.0.0', more: 'x'.repeat(1024 * 1024) }) },
    'bad_response',
  ],
  'sends an HTML page instead of a record': [{ detail: response => response.end('<h1>Welcome</h1>') }, 'bad_response'],
  'names a version that is a path': [{ detail: answerJson(200, { latest_version: '../../x' }) }, 'bad_response'],
  'names a version that is a number': [{ detail: answerJson(200, { latest_version: 2 }) }, 'bad_response'],
  'names no version': [{ detail: answerJson(200, { latest_version: null }) }, 'no_published_version'],
  'has an error that is not text': [{ artifact: answerJson(410, { error: { deep: [1] } }) }, 'artifact_unavailable'],
}

/** Artifacts, each with the signature header that the hub sends, and with the code of the refusal. */
export const WRONGLY_SIGNED: Record<string, [Buffer, string | undefined, ErrorCode]> = {
  'without a signature': [bytes, undefined, 'missing_signature'],
  'with an empty signature': [bytes, '', 'missing_signature'],
  'with another algorithm': [bytes, signature.replace('hmac_sha256', 'hmac_md5'), 'invalid_signature_format'],
  'with a signature that is cut short': [bytes, signature.slice(0, -1), 'invalid_signature_format'],
  'with a bare digest': [bytes, signature.replace('hmac_sha256:', ''), 'invalid_signature_format'],
  'with one changed bit': [flipped, signature, 'signature_mismatch'],
  'with an extra byte': [Buffer.concat([bytes, Buffer.alloc(1)]), signature, 'signature_mismatch'],
  'with a signature made with another secret': [bytes, signatureOf(bytes, 'another secret'), 'signature_mismatch'],
}

/** Files that are not a plugin of version 2.0.0, each with the code of the refusal. */
export const WRONG_PLUGINS: Record<string, [Record<string, string>, ErrorCode]> = {
  'is not a plugin': [{ 'README.md': 'hello' }, 'not_a_plugin'],
  'has a plugin.yaml of more than 32 KiB': [
    pluginFiles('2.0.0', { 'plugin.yaml': `version: "2.0.0"\n#${' '.repeat(32 * 1024)}\n` }),
    'invalid_manifest',
  ],
  'has a plugin.yaml that costs too much to read': [
    pluginFiles('2.0.0', { 'plugin.yaml': `version: "2.0.0"\na: [${','.repeat(30_000)}\n` }),
    'invalid_manifest',
  ],
  'has a plugin.yaml in which other YAML readers find another mode': [
    pluginFiles('2.0.0', { 'plugin.yaml': 'version: "2.0.0"\n# hi\u0085execution_mode: trusted\n' }),
    'invalid_manifest',
  ],
  'has a folder named plugin.yaml': [{ 'plugin.yaml/x': '', 'src/main.py': '' }, 'not_a_plugin'],
  'has a plugin.yaml of another version': [pluginFiles('2.0.1'), 'version_mismatch'],
  'has a plugin.yaml that is a list': [{ 'plugin.yaml': '- 1\n' }, 'not_a_plugin'],
}

/** Plans for the plugin greeter that are refused, each with the line and column of every problem. */
export const REFUSED_PLANS: Record<string, { plan: string; at: [number, number][] }> = {
  'is for another project': { plan: PLUGIN_PLAN.replace('project_id: greeter', 'project_id: clock'), at: [[2, 13]] },
  'is not YAML': { plan: 'format_version: "1"\nsteps: [\n', at: [[3, 1]] },
  'has an unknown action and a key that no step has': {
    plan: `${PLUGIN_PLAN}  - {id: shell, action: run}\n  - {id: again, action: prepare, command: reboot}\n`,
    at: [
      [7, 25],
      [8, 34],
    ],
  },
  'has steps that depend on each other': {
    plan: `${PLUGIN_PLAN}  - {id: a, action: prepare, depends_on: [b]}\n  - {id: b, action: prepare, depends_on: [a]}\n`,
    at: [[8, 43]],
  },
  'installs an extension instead of a plugin': { plan: SERVICE_PLAN.replaceAll('clock', 'greeter'), at: [[5, 5]] },
  'installs nothing': {
    plan: 'format_version: "1"\nproject_id: greeter\nversion: "1"\nsteps:\n  - {id: a, action: prepare}\n',
    at: [[4, 1]],
  },
  'needs a supervisor that is not configured': {
    plan: `${PLUGIN_PLAN}  - {id: up, action: restart, depends_on: [files]}\n`,
    at: [[7, 5]],
  },
  'needs a provision command that is not configured': {
    plan: `${PLUGIN_PLAN}  - {id: database, action: provision, plugin: greeter}\n`,
    at: [[7, 5]],
  },
  'seeds settings from a file that the artifact lacks': {
    plan: `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/none, depends_on: [files]}\n`,
    at: [[7, 5]],
  },
}
