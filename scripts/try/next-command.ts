import { FIRST_VERSION } from './part.ts'
import { howToRaise, type Sources } from './sources.ts'

/** The command-line options that the next command repeats. */
export interface RepeatedOptions {
  readonly from?: string | undefined
  readonly kind?: string | undefined
  readonly slug?: string | undefined
  readonly 'plugins-dirname'?: string | undefined
  readonly plan?: string | undefined
  readonly 'host-config'?: string | undefined
  readonly setting: readonly string[]
  readonly root?: string | undefined
}

/**
 * Returns the command that deploys the next version of the sources. If --root was not given, the command deploys the
 * same version with --root instead. The values of settings may be secret, so only their names appear.
 */
export function nextCommand(sources: Sources, given: RepeatedOptions): string {
  const repeated = Object.entries({
    from: given.from ?? sources.folder,
    kind: given.kind,
    slug: given.slug,
    'plugins-dirname': given['plugins-dirname'],
    plan: given.plan,
    'host-config': given['host-config'],
    root: given.root ?? 'DIR',
  })
  return [
    'npm run try --',
    ...repeated.flatMap(([name, value]) => (value === undefined ? [] : [`--${name} ${quoted(value)}`])),
    ...given.setting.map(setting => `--setting ${quoted(`${setting.split('=', 1)[0]}=…`)}`),
    ...versionOption(sources, given),
  ].join(' ')
}

/** Leaves out the option for a version that a file names or that is the default. */
function versionOption(sources: Sources, { root }: RepeatedOptions): string[] {
  if (sources.versionFile !== undefined) return []
  if (root !== undefined) return [howToRaise(sources)]
  const isDefault = sources.kind !== 'plugin' && sources.version === FIRST_VERSION
  return isDefault ? [] : [`--version ${sources.version}`]
}

/** Quotes a text so that a shell reads it back unchanged. */
function quoted(text: string): string {
  return /^[\w@%+=:,./…-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}
