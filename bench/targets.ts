import type { ContenderName } from './contenders.ts'

/** Upper limits for ours: time as a ratio to each peer's, and memory in MB of 10^6 bytes. */
export type Targets = Partial<Record<Exclude<ContenderName, 'ours'>, number>> & { readonly peakMb?: number }

/** Memory that a sealed artifact's deployment may use in addition to one copy of the sealed file. */
const SEALED_EXTRA_MB = 190

const TARGETS: Readonly<Record<string, Targets>> = {
  S: { shell: 2.5, python: 1.5, peakMb: 90 },
  M: { shell: 0.85, python: 0.6, peakMb: 130 },
  L: { shell: 0.5, python: 0.4, peakMb: 150 },
  X: { shell: 0.4, peakMb: 220 },
  'sealed-L': { shell: 0.85, python: 0.55 },
}

/** The targets of a race. For a sealed artifact, the memory limit depends on its size. */
export function targetsOf(race: string, artifact: { format: string; size: number }): Targets {
  const targets = TARGETS[race] ?? {}
  return artifact.format === 'sealed' ? { ...targets, peakMb: artifact.size / 1e6 + SEALED_EXTRA_MB } : targets
}
