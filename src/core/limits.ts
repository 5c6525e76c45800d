/**
 * Limits of the contracts (docs/contracts.md), in bytes unless the name says otherwise. The first three are defaults of
 * inputs.
 */
export const DEFAULT_MAX_ARTIFACT_BYTES = 512 * 1024 * 1024
export const DEFAULT_MAX_EXTRACTED_BYTES = 2 * 1024 * 1024 * 1024
export const DEFAULT_MAX_ENTRIES = 100_000
export const MAX_NAME_BYTES = 255
export const MAX_PATH_BYTES = 4096
/** Leaves room for the names that this action appends: the system limits the length of a whole path. */
export const MAX_PROJECT_ROOT_BYTES = 3500
export const MAX_PATH_LEVELS = 64
export const MAX_JSON_BODY_BYTES = 1024 * 1024
/** For a file that someone writes by hand: settings and their template. */
export const MAX_SMALL_FILE_BYTES = 256 * 1024

/** Limits on the cost of reading one YAML text. */
export interface YamlLimits {
  readonly bytes: number
  /** The number of words, signs, spaces and line endings that the parser distinguishes. */
  readonly lexemes: number
}

export const PLUGIN_YAML_LIMITS: YamlLimits = { bytes: 32 * 1024, lexemes: 16 * 1024 }
/** For the plan in a project's archive. */
export const BUNDLED_PLAN_LIMITS: YamlLimits = { bytes: 64 * 1024, lexemes: 32 * 1024 }
/** For the operator's own plan and host config. */
export const OPERATOR_YAML_LIMITS: YamlLimits = { bytes: 256 * 1024, lexemes: 128 * 1024 }
export const MAX_FOREIGN_TEXT_CHARS = 500
