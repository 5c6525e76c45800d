import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync } from 'node:fs'
import { missingTools } from '../../extent.ts'
import { listTree } from '../../folders.ts'

/** Maps each path in an archive to the content of a file or the target of a symlink. */
export type Seen = Readonly<Record<string, string>>

/** Another program that reads archives. `read` returns undefined for each archive that the program refuses. */
export interface SecondReader {
  readonly name: string
  readonly tool: string
  readonly read: (archives: readonly string[]) => (Seen | undefined)[]
}

/** Exit codes of a tool that has read the archive, perhaps with a warning. */
const READ_STATUSES = [0, 1]
const UTF8 = { ...process.env, LC_ALL: 'C.UTF-8' }

/** Prints the result of `see` for each archive, or `null` if `see` fails, as a JSON array. */
const SEE_EACH = `
def seen(path):
    try:
        return see(path)
    except Exception:
        return None
print(json.dumps([seen(path) for path in sys.argv[1:]]))
`
const READ_ZIPS = `
import json, sys, zipfile
def see(path):
    with zipfile.ZipFile(path) as zip:
        return {i.filename: zip.read(i).decode('latin-1') for i in zip.infolist() if not i.is_dir()}
${SEE_EACH}`
const READ_TARS = `
import json, sys, tarfile
def content(tar, m):
    return m.linkname if m.issym() else tar.extractfile(m).read().decode('latin-1')
def see(path):
    with tarfile.open(path) as tar:
        return {m.name: content(tar, m) for m in tar if not m.isdir()}
${SEE_EACH}`

export const ZIP_READERS: readonly SecondReader[] = [
  python('Python zipfile', READ_ZIPS),
  extractor('unzip', (archive, target) => ['unzip', '-qq', '-o', archive, '-d', target]),
  extractor('bsdtar', (archive, target) => ['bsdtar', '-xf', archive, '-C', target]),
  extractor('bsdtar from a pipe', (archive, target) => ['bsdtar', '-xf', '-', '-C', target, '<', archive]),
  extractor('7-Zip', (archive, target) => ['7zz', 'x', '-y', `-o${target}`, archive]),
]

export const TAR_READERS: readonly SecondReader[] = [
  python('Python tarfile', READ_TARS),
  extractor('GNU tar', (archive, target) => ['tar', '--no-same-owner', '-xf', archive, '-C', target]),
  extractor('bsdtar', (archive, target) => ['bsdtar', '-xf', archive, '-C', target]),
]

/** The reason to skip a reader if its program is missing; false if the program is installed. */
export function whyNot({ tool }: SecondReader): string | false {
  return missingTools(tool)
}

/** Returns the content of a folder in the form in which a reader returns the content of an archive. */
export function seenIn(folder: string): Seen {
  const entries = Object.entries(listTree(folder)).filter(([, what]) => !what.endsWith(' directory'))
  return Object.fromEntries(entries.map(([path, what]) => [path, what.slice(what.indexOf(' ') + 1)]))
}

function python(name: string, program: string): SecondReader {
  const read = (archives: readonly string[]): (Seen | undefined)[] => {
    const output = execFileSync('python3', ['-c', program, ...archives], { maxBuffer: 100_000_000 })
    return (JSON.parse(output.toString()) as (Seen | null)[]).map(seen => seen ?? undefined)
  }
  return { name, tool: 'python3', read }
}

/**
 * Returns a reader that extracts an archive with a command line. If the word before the last one is `<`, the command
 * reads the archive from its standard input.
 */
function extractor(name: string, command: (archive: string, target: string) => string[]): SecondReader {
  const read = (archive: string): Seen | undefined => {
    const target = mkdtempSync(`${archive}-`)
    const [tool = '', ...words] = command(archive, target)
    const isPiped = words.at(-2) === '<'
    const args = isPiped ? words.slice(0, -2) : words
    const { status } = spawnSync(tool, args, { env: UTF8, ...(isPiped && { input: readFileSync(archive) }) })
    return READ_STATUSES.includes(status ?? -1) ? seenIn(target) : undefined
  }
  return { name, tool: command('', '')[0] ?? '', read: archives => archives.map(read) }
}
