import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type ActionRun, runAction, type Workspace } from '../local/runner.ts'
import type { ProcessEnd, Start } from './measure.ts'
import { findPython, hasPythonModule, isInstalled } from './programs.ts'
import { installPlan } from './source-tree.ts'
import { API_KEY, type Artifact, DEPLOYMENT_CREDENTIAL, type Format, SIGNING_SECRET, SLUG } from './workloads.ts'

export type ContenderName = 'ours' | 'shell' | 'python' | 'least'

/** One deployment: an artifact, the hub that serves it, and the host. */
export interface Job {
  readonly artifact: Artifact
  readonly hubUrl: string
  readonly projectRoot: string
  readonly workspace: Workspace
}

export interface Contender {
  readonly name: ContenderName
  readonly format: Format
  /** The programs, Python modules and files of `dist/` that the contender lacks; empty if it can run. */
  readonly missing: readonly string[]
  start(job: Job, ...how: Parameters<Start>): Promise<ProcessEnd>
}

const PEERS = join(import.meta.dirname, 'peers')
const PLAN = 'install.yaml'

/** All contenders for a format, including those that cannot run here. Ours runs the `dist/` of `repository`. */
export function listContenders(format: Format, repository: string): Contender[] {
  const python = findPython() ?? 'python3'
  const peers = {
    zip: [
      ours('zip', repository),
      peer(['bash', 'deploy.sh'], { name: 'shell', format, missing: lacking(['bash', 'curl', 'openssl', 'unzip']) }),
      peer([python, 'deploy.py'], { name: 'python', format, missing: lacking(['python3']) }),
      peer([process.execPath, 'least.mjs'], { name: 'least', format, missing: [] }),
    ],
    sealed: [
      ours('sealed', repository),
      peer(['bash', 'deploy-sealed.sh'], {
        name: 'shell',
        format,
        missing: lacking(['bash', 'curl', 'openssl', 'zstd', 'tar']),
      }),
      peer([python, 'deploy-sealed.py'], {
        name: 'python',
        format,
        missing: lacking(['python3', 'zstd'], ['cryptography']),
      }),
    ],
  }
  return peers[format]
}

/** Deploys with our action. `more` adds properties to the run, for example variables. */
export function deployWithOurs(job: Job, more: Partial<ActionRun> = {}): ReturnType<typeof runAction> {
  const { format, version } = job.artifact
  writeFileSync(join(job.workspace.path, PLAN), installPlan(version))
  return runAction({
    workspace: job.workspace,
    action: OURS[format].folder,
    inputs: OURS[format].inputsOf(job),
    ...more,
  })
}

const OURS = {
  zip: { program: 'deploy.js', folder: '.', inputsOf: marketplaceInputs },
  sealed: { program: 'project.js', folder: 'project', inputsOf: projectInputs },
}

function ours(format: Format, repository: string): Contender {
  const program = join('dist', OURS[format].program)
  return {
    name: 'ours',
    format,
    missing: existsSync(join(repository, program)) ? [] : [program],
    start: (job, through, onStart) => deployWithOurs(job, { repository, through, onStart }),
  }
}

function marketplaceInputs(job: Job): Record<string, string> {
  return {
    'hub-url': job.hubUrl,
    slug: SLUG,
    'api-key': API_KEY,
    'signing-secret': SIGNING_SECRET,
    'install-plan': PLAN,
    'project-root': job.projectRoot,
    'host-id': 'bench',
  }
}

function projectInputs(job: Job): Record<string, string> {
  return {
    'hub-url': job.hubUrl,
    devkey: API_KEY,
    'project-id': SLUG,
    'deployment-credential': DEPLOYMENT_CREDENTIAL,
    'signer-public-key': signerOf(job.artifact),
    'project-root': job.projectRoot,
    'host-id': 'bench',
  }
}

function peer([program, script]: readonly [string, string], traits: Omit<Contender, 'start'>): Contender {
  return {
    ...traits,
    start: (job, through, onStart) =>
      runProgram([...through, program, join(PEERS, script)], peerEnvironment(job), onStart),
  }
}

function peerEnvironment(job: Job): Record<string, string> {
  const work = join(job.workspace.temp, 'peer')
  mkdirSync(work, { recursive: true })
  return {
    PATH: process.env['PATH'] ?? '',
    NODE: process.execPath,
    PYTHONDONTWRITEBYTECODE: '1',
    HUB_URL: job.hubUrl,
    SLUG,
    API_KEY,
    SIGNING_SECRET,
    DEPLOYMENT_CREDENTIAL,
    SIGNER_PUBLIC_KEY: signerOf(job.artifact),
    PROJECT_ROOT: job.projectRoot,
    WORK: work,
  }
}

function signerOf(artifact: Artifact): string {
  return artifact.format === 'sealed' ? artifact.signerPublicKey : ''
}

async function runProgram(
  command: readonly string[],
  env: Record<string, string>,
  onStart: () => void,
): Promise<ProcessEnd> {
  const [program, ...args] = command as [string, ...string[]]
  const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'pipe'] })
  onStart()
  let log = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', text => {
      log += text
    })
  }
  const exitCode = await new Promise<number | null>((done, fail) => child.once('error', fail).once('close', done))
  return { exitCode, log }
}

function lacking(programs: readonly string[], pythonModules: readonly string[] = []): string[] {
  const missing = programs.filter(program => !isInstalled(program))
  return [...missing, ...pythonModules.filter(name => !hasPythonModule(name)).map(name => `python3 ${name}`)]
}
