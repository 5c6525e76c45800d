import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { ActionResult } from '../../local/runner.ts'
import { expectEqual } from './expect.ts'
import { CLOCK, GREETER, RELEASES } from './releases.ts'
import type { DemoStage } from './stage.ts'

/** One chapter of the demo. */
export interface Deployment {
  readonly title: string
  /** Sentences that set the scene, one a line. */
  readonly intro: readonly string[]
  /** Makes the intro true. */
  arrange(on: DemoStage): Promise<void>
  run(on: DemoStage): Promise<ActionResult>
  /** The outputs that the run must have. Unless it succeeds, it must leave the installed files unchanged. */
  readonly expected: Readonly<Record<string, string>>
  /** Checks more than the outputs. */
  verify?(on: DemoStage): void
  /** A sentence that sums up what the checks have shown. */
  readonly verified: string
}

const SHOP_PLUGINS = '[{"id":"cart","version":"1.0.0"},{"id":"till","version":"2.3.0"}]'
const SHOP_PARTS = ['plugins/cart/plugin.sig', 'plugins/till/plugin.sig', 'extensions/mailer/run.sh']

const deployGreeter = (on: DemoStage): Promise<ActionResult> => on.deploy(GREETER, 'install.yaml')

export const DEPLOYMENTS: readonly Deployment[] = [
  {
    title: 'Deploy a plugin',
    intro: ['The developer signs and publishes greeter 1.0.0. The operator deploys it.'],
    async arrange(on) {
      await on.publish(RELEASES.greeter1)
    },
    run: deployGreeter,
    expected: { outcome: 'success', changed: 'true', version: '1.0.0', 'previous-version': '' },
    verified: 'greeter 1.0.0 is installed, with a plugin.sig for this host. The hub has the report.',
  },
  {
    title: 'Deploy a service',
    intro: ['clock 1.0.0 is a service, so it goes to extensions/.'],
    async arrange(on) {
      await on.publish(RELEASES.clock1)
    },
    run: on => on.deploy(CLOCK, 'install-service.yaml'),
    expected: { outcome: 'success', changed: 'true', version: '1.0.0', 'previous-version': '' },
    verified: 'clock 1.0.0 is installed.',
  },
  {
    title: 'Update the plugin',
    intro: ['Meanwhile, greeter has written data/visits.txt. The developer publishes 1.1.0.'],
    async arrange(on) {
      mkdirSync(dirname(visits(on)))
      writeFileSync(visits(on), '42\n')
      await on.publish(RELEASES.greeter11)
    },
    run: deployGreeter,
    expected: { outcome: 'success', changed: 'true', version: '1.1.0', 'previous-version': '1.0.0' },
    verify: on => expectEqual('data/visits.txt', readFileSync(visits(on), 'utf8'), '42\n'),
    verified: 'greeter 1.1.0 is installed and still has its data. Version 1.0.0 remains as a snapshot.',
  },
  {
    title: 'Refuse a tampered artifact',
    intro: [
      'The developer publishes greeter 1.2.0. Then one bit of it flips on the hub’s disk.',
      'The action must refuse it, so you will see an error.',
    ],
    async arrange(on) {
      on.tamper(await on.publish(RELEASES.greeter12))
    },
    run: deployGreeter,
    expected: { outcome: 'failed', changed: 'false', 'error-code': 'signature_mismatch' },
    verified: 'The action refused the artifact (signature_mismatch) and extracted nothing. The host is unchanged.',
  },
  {
    title: 'Roll back a failed step',
    intro: [
      'greeter 2.0.0 requires the setting GREETER_TOKEN, which this host lacks. So the last step of the plan fails, when the',
      'new files are already in place. The action must roll back, so you will see an error.',
    ],
    async arrange(on) {
      await on.publish(RELEASES.greeter2)
    },
    run: on => on.deploy(GREETER, 'install-with-settings.yaml'),
    expected: { outcome: 'rolled_back', changed: 'false', 'failed-step': 'settings' },
    verified: 'The action rolled back. greeter 1.1.0 is in place again, byte for byte.',
  },
  {
    title: 'Deploy a project',
    intro: [
      'The publisher seals shop 1.0.0 into one encrypted and signed file: two plugins, an extension and their plan.',
      'The action verifies the signature, requests the key, and installs all three parts or none.',
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
    verified: 'cart, till and mailer are installed, and each plugin has its plugin.sig. The hub has the report.',
  },
  {
    title: 'Stop at a revoked credential',
    intro: [
      'The publisher releases shop 1.1.0. Then the hub’s administrator revokes the operator’s deployment credential.',
      'The hub must not release the key, so you will see an error.',
    ],
    async arrange(on) {
      await on.project.publish(RELEASES.shop11)
      on.project.revokeCredential()
    },
    run: on => on.project.deploy(),
    expected: { outcome: 'failed', changed: 'false', version: '1.1.0', 'error-code': 'authentication_failed' },
    verified: 'The hub released no key (authentication_failed), and nothing was decrypted. The host is unchanged.',
  },
]

function visits(on: DemoStage): string {
  return join(on.root, 'plugins/greeter/data/visits.txt')
}
