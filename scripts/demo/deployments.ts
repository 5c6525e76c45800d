import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { ActionResult } from '../../local/runner.ts'
import { CLOCK, type DemoStage, GREETER, RELEASES } from './stage.ts'

export interface Deployment {
  readonly title: string
  /** The actions of the people in the story, before the operator deploys. */
  readonly story: string
  /** Performs the actions of the story. */
  arrange(on: DemoStage): Promise<void>
  run(on: DemoStage): Promise<ActionResult>
  /** The outputs that the run must have. A run that does not succeed must also leave the installed files unchanged. */
  readonly expected: Readonly<Record<string, string>>
  /** Checks more than the outputs. */
  verify?(on: DemoStage): void
  /** A true sentence about the host after the run. The demo prints it after the versions on the host. */
  readonly verified: string
}

const SHOP_PLUGINS = '[{"id":"cart","version":"1.0.0"},{"id":"till","version":"2.3.0"}]'
const SHOP_PARTS = ['plugins/cart/plugin.sig', 'plugins/till/plugin.sig', 'extensions/mailer/run.sh']

const deployGreeter = (on: DemoStage): Promise<ActionResult> => on.deploy(GREETER, 'install.yaml')

export const DEPLOYMENTS: readonly Deployment[] = [
  {
    title: 'Deploy a plugin',
    story: 'The developer signs and publishes greeter 1.0.0.',
    async arrange(on) {
      await on.publish(RELEASES.greeter1)
    },
    run: deployGreeter,
    expected: { outcome: 'success', changed: 'true', version: '1.0.0', 'previous-version': '' },
    verify: on => expectEqual('plugin.sig', existsSync(join(on.root, 'plugins/greeter/plugin.sig')), true),
    verified: 'The plugin is signed for this host, and the hub has the report.',
  },
  {
    title: 'Deploy a service',
    story: 'clock 1.0.0 is a service, so it goes to extensions/.',
    async arrange(on) {
      await on.publish(RELEASES.clock1)
    },
    run: on => on.deploy(CLOCK, 'install-service.yaml'),
    expected: { outcome: 'success', changed: 'true', version: '1.0.0', 'previous-version': '' },
    verified: 'The plugin is unchanged.',
  },
  {
    title: 'Update the plugin',
    story: 'Meanwhile, greeter has written data/visits.txt. The developer publishes 1.1.0.',
    async arrange(on) {
      mkdirSync(dirname(visits(on)))
      writeFileSync(visits(on), '42\n')
      await on.publish(RELEASES.greeter11)
    },
    run: deployGreeter,
    expected: { outcome: 'success', changed: 'true', version: '1.1.0', 'previous-version': '1.0.0' },
    verify: on => expectEqual('data/visits.txt', readFileSync(visits(on), 'utf8'), '42\n'),
    verified: 'greeter kept its data, and 1.0.0 is a snapshot.',
  },
  {
    title: 'Refuse a tampered artifact',
    story: 'After greeter 1.2.0 is signed, one of its bits flips on the hub’s disk.',
    async arrange(on) {
      on.tamper(await on.publish(RELEASES.greeter12))
    },
    run: deployGreeter,
    expected: { outcome: 'failed', changed: 'false', 'error-code': 'signature_mismatch' },
    verified: 'Nothing was extracted, and no file was changed.',
  },
  {
    title: 'Roll back a failed step',
    story: 'greeter 2.0.0 requires a setting that this host does not have.',
    async arrange(on) {
      await on.publish(RELEASES.greeter2)
    },
    run: on => on.deploy(GREETER, 'install-with-settings.yaml'),
    expected: { outcome: 'rolled_back', changed: 'false', 'failed-step': 'settings' },
    verified: 'The old files are in place again, byte for byte.',
  },
  {
    title: 'Deploy a project',
    story: 'shop 1.0.0 is two plugins, an extension and their plan, sealed into one file.',
    async arrange(on) {
      await on.project.publish(RELEASES.shop1)
    },
    run: on => on.project.deploy(),
    expected: { outcome: 'success', changed: 'true', version: '1.0.0', 'previous-version': '', plugins: SHOP_PLUGINS },
    verify(on) {
      const missing = SHOP_PARTS.filter(path => !existsSync(join(on.root, path)))
      expectEqual('the missing parts of the project', missing.join(', '), '')
    },
    verified: 'All parts of the project are installed.',
  },
  {
    title: 'Stop at a revoked credential',
    story: 'The hub revokes the operator’s credential before the next deployment.',
    async arrange(on) {
      await on.project.publish(RELEASES.shop11)
      on.project.revokeCredential()
    },
    run: on => on.project.deploy(),
    expected: { outcome: 'failed', changed: 'false', version: '1.1.0', 'error-code': 'authentication_failed' },
    verified: 'No file was changed.',
  },
]

function visits(on: DemoStage): string {
  return join(on.root, 'plugins/greeter/data/visits.txt')
}

/** Throws if `found` is not `expected`; the error ends the demo. */
export function expectEqual<T>(what: string, found: T, expected: T): void {
  if (found !== expected) {
    throw new Error(`Expected ${what} to be ${JSON.stringify(expected)}, found ${JSON.stringify(found)}.`)
  }
}
