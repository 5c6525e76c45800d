import { existsSync, globSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { whyLeftToCi } from '../test/extent.ts'

const ROOT = join(import.meta.dirname, '..')
const FOLDER = join(ROOT, '.test-processes')

/** Files whose tests are all left to CI. If they run, each has its own process; otherwise, they share one. */
const LEFT_TO_CI =
  'test/e2e/{kill/{sweep,undo-full-disk,project,rollback,power-cuts,error-sweep,durability-order},host/systemd-nights}.test.ts'

/**
 * Files that take the longest with CI=true, or that wait for a long time. Each has its own process, which starts early.
 */
const ALONE = [
  'test/e2e/kill/{*cancel*,faults,table,no-change,random,nights,damaged-state}.test.ts',
  'test/e2e/host/{clock-jumps,disk,lock,outputs-of-truth,reported-full-disk}.test.ts',
  'test/e2e/{endings,project/extraction,deploy/switch-frames,hub/time-outs}.test.ts',
  'test/{layers,examples}.test.ts',
  'test/e2e/workflows/{examples,rollout}.test.ts',
  'test/scripts/{bench-race,footprint}.test.ts',
]

/**
 * The other files share processes, because each process costs a quarter of a second before its first test. But the more
 * memory a process has, the longer it takes to start a child, so a file that starts many children shares its process
 * with few others. The last processes take the least time, so that no processor is idle at the end.
 */
const SHARED: readonly { readonly name: string; readonly files: string; readonly processes: number }[] = [
  { name: 'e2e', files: 'test/e2e/**/*.test.ts', processes: 12 },
  { name: 'repository', files: 'test/{*,scripts/**/*}.test.ts', processes: 2 },
  { name: 'hub', files: 'test/hub/**/*.test.ts', processes: 3 },
  { name: 'git', files: 'test/sources/git*.test.ts', processes: 1 },
  { name: 'actions', files: 'test/{actions,marketplace,net,runner,sources,start}/**/*.test.ts', processes: 2 },
  { name: 'archive', files: 'test/install/archive/**/*.test.ts', processes: 2 },
  { name: 'locks', files: 'test/install/host/{lock*,kernel-lock,process-identity}.test.ts', processes: 1 },
  { name: 'host', files: 'test/install/{status,{host,trees}/**/*}.test.ts', processes: 2 },
  { name: 'install', files: 'test/install/**/*.test.ts', processes: 4 },
  { name: 'rules', files: 'test/{core,fleet,project,rollback}/**/*.test.ts', processes: 1 },
]

if (import.meta.main) writeProcesses(testProcesses())

/** Returns the test files of each process, by the name of the process. Every test file is in exactly one process. */
export function testProcesses(): ReadonlyMap<string, readonly string[]> {
  const free = new Set(globSync('test/**/*.test.ts', { cwd: ROOT }).toSorted())
  const take = (pattern: string): string[] =>
    globSync(pattern, { cwd: ROOT })
      .filter(file => free.delete(file))
      .toSorted()
  const left = take(LEFT_TO_CI)
  const isLeft = whyLeftToCi() !== false
  const alone = [...(isLeft ? [] : left), ...ALONE.flatMap(take)]
  const shared = SHARED.flatMap(({ name, files, processes }) =>
    split(take(files), processes).map((part, index) => [`${name}-${index + 1}`, part] as const),
  )
  const single = [...free, ...alone].map(file => [nameOf(file), [file]] as const)
  return new Map<string, readonly string[]>([...single, ...(isLeft ? [['left-to-ci', left] as const] : []), ...shared])
}

/** Writes a file for each process, and removes all others. `node --test` starts the processes in the files' order. */
function writeProcesses(processes: ReturnType<typeof testProcesses>): void {
  mkdirSync(FOLDER, { recursive: true })
  const together = relative(FOLDER, join(ROOT, 'test', 'together.ts'))
  const written = [...processes].map(([name, files], index) => {
    const path = `${String(index + 1).padStart(2, '0')}-${name}.test.mjs`
    const list = files.map(file => `  '${file}',\n`).join('')
    write(path, `import { runTogether } from '${together}'\n\nrunTogether([\n${list}])\n`)
    return path
  })
  for (const path of readdirSync(FOLDER)) if (!written.includes(path)) rmSync(join(FOLDER, path))
}

/** Writes a file only if it changes, because another test run may be reading the same file. */
function write(name: string, text: string): void {
  const path = join(FOLDER, name)
  if (!existsSync(path) || readFileSync(path, 'utf8') !== text) writeFileSync(path, text)
}

/** Splits the files, in their order, into equal parts, give or take one file. */
function split(files: readonly string[], parts: number): string[][] {
  const cut = (part: number): number => Math.round((files.length * part) / parts)
  return Array.from({ length: parts }, (_, part) => files.slice(cut(part), cut(part + 1)))
}

function nameOf(file: string): string {
  return file
    .replace(/^test\/(?:e2e\/)?/, '')
    .replace(/\.test\.ts$/, '')
    .replaceAll('/', '-')
}
