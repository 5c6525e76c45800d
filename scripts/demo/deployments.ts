import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { ActionResult } from '../../local/runner.ts'
import { expectEqual } from './expect.ts'
import { RELEASES } from './releases.ts'
import type { DemoStage } from './stage.ts'

/** One chapter of the story. */
export interface Deployment {
  readonly title: string
  /** What goes before it, in sentences. */
  readonly story: readonly string[]
  /** Brings about what the story tells. */
  arrange(on: DemoStage): Promise<void>
  run(on: DemoStage): Promise<ActionResult>
  /** Outputs that it must have. Unless it is a success, what is installed must be as before. */
  readonly expected: Readonly<Record<string, string>>
  /** What must hold besides. */
  verify?(on: DemoStage): void
  /** What has been verified by then, as a sentence. */
  readonly verified: string
}

const SHOP_PLUGINS = '[{"id":"cart","version":"1.0.0"},{"id":"till","version":"2.3.0"}]'
const SHOP_PARTS = ['plugins/cart/plugin.sig', 'plugins/till/plugin.sig', 'extensions/mailer/run.sh']

const deployGreeter = (on: DemoStage): Promise<ActionResult> => on.deploy('plugin', 'greeter', 'install.yaml')

export const DEPLOYMENTS: readonly Deployment[] = [
  {
    title: 'deploy a plugin',
    story: ['greeter 1.0.0 is published, signed by its developer, and deployed.'],
    async arrange(on) {
      await on.publish(RELEASES.greeter1)
    },
    run: deployGreeter,
    expected: { outcome: 'success', changed: 'true', version: '1.0.0', 'previous-version': '' },
    verified: 'greeter 1.0.0 is installed, with a plugin.sig made for this host, and the hub has the report.',
  },
  {
    title: 'deploy a service',
    story: ['clock 1.0.0 goes beside it, below extensions/.'],
    async arrange(on) {
      await on.publish(RELEASES.clock1)
    },
    run: on => on.deploy('service', 'clock', 'install-service.yaml'),
    expected: { outcome: 'success', changed: 'true', version: '1.0.0', 'previous-version': '' },
    verified: 'clock 1.0.0 is installed.',
  },
  {
    title: 'update the plugin',
    story: ['greeter has meanwhile written data/visits.txt. Now 1.1.0 is published and deployed.'],
    async arrange(on) {
      mkdirSync(dirname(visits(on)))
      writeFileSync(visits(on), '42\n')
      await on.publish(RELEASES.greeter11)
    },
    run: deployGreeter,
    expected: { outcome: 'success', changed: 'true', version: '1.1.0', 'previous-version': '1.0.0' },
    verify: on => expectEqual('the plugin’s own data', readFileSync(visits(on), 'utf8'), '42\n'),
    verified: 'greeter 1.1.0 is installed, its own data was carried over, and 1.0.0 is retained as a snapshot.',
  },
  {
    title: 'a tampered artifact is refused',
    story: [
      'greeter 1.2.0 is published; then one bit of it is flipped on the hub’s disk. The refusal below is what should happen.',
    ],
    async arrange(on) {
      on.tamper(await on.publish(RELEASES.greeter12))
    },
    run: deployGreeter,
    expected: { outcome: 'failed', changed: 'false', 'error-code': 'signature_mismatch' },
    verified: 'Refused as expected (signature_mismatch); nothing was extracted, and the host is unchanged.',
  },
  {
    title: 'a failing step is rolled back',
    story: [
      'greeter 2.0.0 requires the setting GREETER_TOKEN, which nobody has given. The plan’s last step finds that out,',
      'when the new files are in their place already. The failure below is what should happen.',
    ],
    async arrange(on) {
      await on.publish(RELEASES.greeter2)
    },
    run: on => on.deploy('plugin', 'greeter', 'install-with-settings.yaml'),
    expected: { outcome: 'rolled_back', changed: 'false', 'failed-step': 'settings' },
    verified: 'Rolled back as expected; greeter 1.1.0 is in place again, byte for byte.',
  },
  {
    title: 'deploy a project',
    story: [
      'Now by the proposed contract. shop 1.0.0, two plugins and an extension with their plan, is sealed, signed and published.',
      'The action asks for the key that opens it only when the signature has held, and puts all three in place as one.',
    ],
    async arrange(on) {
      await on.project.publish(RELEASES.shop1)
    },
    run: on => on.project.deploy(),
    expected: { outcome: 'success', changed: 'true', version: '1.0.0', 'previous-version': '', plugins: SHOP_PLUGINS },
    verify(on) {
      const missing = SHOP_PARTS.filter(path => !existsSync(join(on.root, path)))
      expectEqual('the missing parts of the project', missing.join(', '), '')
    },
    verified: 'cart, till and mailer are installed, the plugins with a plugin.sig each, and the hub has the report.',
  },
  {
    title: 'a revoked credential is refused',
    story: [
      'shop 1.1.0 is published; then the operator’s deployment credential is revoked on the hub, which from then on releases',
      'no key for it. The refusal below is what should happen.',
    ],
    async arrange(on) {
      await on.project.publish(RELEASES.shop11)
      on.project.revokeCredential()
    },
    run: on => on.project.deploy(),
    expected: { outcome: 'failed', changed: 'false', version: '1.1.0', 'error-code': 'authentication_failed' },
    verified:
      'Refused as expected (authentication_failed); nothing was decrypted, and shop 1.0.0 runs on, byte for byte.',
  },
]

function visits(on: DemoStage): string {
  return join(on.root, 'plugins/greeter/data/visits.txt')
}
