import { z } from 'zod/mini'
import { idSchema, kindSchema, writtenPluginsDirectorySchema } from '../core/identifiers.ts'
import { installPath, layoutOf, placeOf } from '../install/host/layout.ts'
import type { RunResult } from '../install/reports/result.ts'
import { type Incomplete, refuse } from '../install/run/contract.ts'
import { REMOVAL, type RemovalRequest, removeVersion } from '../rollback/removal.ts'
import { readWorkspace } from '../runner/files.ts'
import { DEFAULT_KEEP_PATHS, readHost } from '../runner/host-inputs.ts'
import { booleanSchema, InputReader, inputError } from '../runner/inputs.ts'
import {
  buildDeploymentOutputs,
  failStep,
  outputsOfFailure,
  runPostStep,
  Step,
  type StepInputs,
} from '../runner/step.ts'
import { FLOWS } from './flows.ts'

type RemoveInputs = StepInputs<Incomplete<RemovalRequest>>

/** The remove action: reads inputs, removes one part, and sets outputs. Fails the step unless everything succeeded. */
export async function remove(): Promise<void> {
  let step: Step | undefined
  try {
    const { request, connection, problems, ...given } = readRemoveInputs(readWorkspace())
    step = new Step(given, outputsOfFailure)
    const tools = step.deploymentTools(connection, FLOWS, result => buildRemoveOutputs(result, request))
    step.finishDeployment(
      problems.length > 0
        ? await refuse(REMOVAL, request, { error: inputError(problems), tools })
        : // If there are no problems, every required input was parsed, and only optional ones are undefined.
          await removeVersion(request as RemovalRequest, tools),
    )
  } catch (error) {
    failStep(step, error)
  } finally {
    step?.close()
  }
}

/** The remove action's post step; see `runPostStep`. */
export async function removePost(): Promise<void> {
  await runPostStep(() => readRemoveInputs(readWorkspace()), FLOWS, REMOVAL)
}

/** Reads every input of the remove action and collects all problems. */
export function readRemoveInputs(workspace: string): RemoveInputs {
  const read = new InputReader('remove', workspace)
  const kind = read.withDefault('kind', z.pipe(z.string(), kindSchema), 'plugin')
  const id = read.required('id', idSchema)
  const request = {
    part: kind === undefined || id === undefined ? undefined : { kind, id },
    pluginsDirectory: read.optional('plugins-directory', writtenPluginsDirectorySchema),
    dryRun: read.withDefault('dry-run', booleanSchema, false),
    ...readHost(read),
    // Kept paths stay in the tree that is removed. Those of the part's last deployment are sticky.
    keepPaths: DEFAULT_KEEP_PATHS,
    allowTakeover: false,
    redeploy: false,
    settings: new Map<string, string>(),
  }
  // No hub is asked or told.
  return { request, connection: { allowHttp: false, ca: undefined }, ...read.given() }
}

/** Returns every output of remove/action.yml. An unknown value is empty. */
export function buildRemoveOutputs(
  result: RunResult,
  { part, projectRoot }: Pick<Incomplete<RemovalRequest>, 'part' | 'projectRoot'>,
): Record<string, string> {
  const path = projectRoot && part && installPath(layoutOf(projectRoot), placeOf({ ...result.report, ...part }))
  return buildDeploymentOutputs(result, path)
}
