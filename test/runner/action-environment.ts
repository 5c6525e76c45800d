import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** The standard output of `act`, which must be synchronous. */
export function capturedOutput<Result>(act: () => Result): { result: Result; output: string } {
  const write = process.stdout.write
  let output = ''
  process.stdout.write = ((text: string | Uint8Array) => {
    output += String(text)
    return true
  }) as typeof write
  try {
    return { result: act(), output }
  } finally {
    process.stdout.write = write
  }
}

/** Runs `act` with these inputs in a workspace with a plan, as the runner would, and restores the environment. */
export function withInputs<Result>(inputs: Readonly<Record<string, string>>, act: (workspace: string) => Result) {
  const before = { ...process.env }
  const workspace = mkdtempSync(join(tmpdir(), 'hub-deploy-inputs-'))
  writeFileSync(join(workspace, 'install.yaml'), 'steps: []\n')
  for (const [name, value] of Object.entries(inputs)) process.env[`INPUT_${name.toUpperCase()}`] = value
  try {
    return capturedOutput(() => act(workspace))
  } finally {
    process.env = before
    rmSync(workspace, { recursive: true, force: true })
  }
}
