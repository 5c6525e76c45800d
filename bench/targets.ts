import type { ContenderName } from './contenders.ts'

/** The most that ours may take: as ratios to its peers' time, and in MB of 10^6 bytes. */
export type Targets = Partial<Record<Exclude<ContenderName, 'ours'>, number>> & { readonly peakMb?: number }

/** What a sealed artifact's deployment may hold besides the sealed file itself, once. */
const SEALED_EXTRA_MB = 150

const TARGETS: Readonly<Record<string, Targets>> = {
  S: { shell: 3.0, python: 1.7, peakMb: 90 },
  M: { shell: 1.05, python: 0.6, peakMb: 130 },
  L: { shell: 0.75, python: 0.4, peakMb: 220 },
  X: { shell: 0.75, peakMb: 220 },
  'sealed-L': { shell: 0.8, python: 0.55 },
}

/** The targets of a race; a sealed artifact's memory depends on its size. */
export function targetsOf(race: string, artifact: { format: string; size: number }): Targets {
  const targets = TARGETS[race] ?? {}
  return artifact.format === 'sealed' ? { ...targets, peakMb: artifact.size / 1e6 + SEALED_EXTRA_MB } : targets
}
