import { buildMember, buildTar, directory, file, GNU, gnuLong, pax, symlink, TAR_END, type TarItem } from './tar-builder.ts'

/** The limit that every tar here exceeds, or keeps to until its last member. */
export const COSTLY_TAR_ENTRIES = 1000

interface CostlyTar {
  readonly name: string
  /** The code of the refusal. */
  readonly code: 'archive_too_large' | 'unsafe_archive' | 'invalid_archive'
  readonly bytes: () => Buffer
}

const TINY_PAX = '5 a=\n'
const LINK = { name: 'link', type: '1', target: 'd/0' }

function times<Made>(count: number, make: (index: number) => Made): Made[] {
  return Array.from({ length: count }, (_, index) => make(index))
}

/** As many files as the limit allows in one directory, and then a last item. */
function fullThen(last: TarItem): Buffer {
  return buildTar([...times(COSTLY_TAR_ENTRIES - 2, index => file(`d/${index}`)), last])
}

/** Tars that compress to almost nothing, and would cost a host a lot of work before it could refuse them. */
export const COSTLY_TARS: readonly CostlyTar[] = [
  {
    name: 'names that imply 45 directories each',
    code: 'archive_too_large',
    bytes: () => buildTar(times(24, index => file(`${index}/${'a/'.repeat(44)}f`))),
  },
  {
    name: 'many names, each in a directory of its own',
    code: 'archive_too_large',
    bytes: () => buildTar(times(900, index => file(`${index}/f`))),
  },
  {
    name: 'many directories',
    code: 'archive_too_large',
    bytes: () => buildTar(times(COSTLY_TAR_ENTRIES + 2, index => directory(`d/${index}/`))),
  },
  { name: 'many empty files and a duplicate', code: 'unsafe_archive', bytes: () => fullThen(file('d/0')) },
  { name: 'many empty files and a hard link', code: 'unsafe_archive', bytes: () => fullThen(LINK) },
  {
    name: 'many empty files and no end',
    code: 'invalid_archive',
    bytes: () => fullThen(file('last')).subarray(0, -2 * 512),
  },
  {
    name: 'symlinks in one long chain',
    code: 'unsafe_archive',
    bytes: () => buildTar(times(900, index => symlink(`${index}`, `${index + 1}`))),
  },
  {
    name: 'long GNU names',
    code: 'archive_too_large',
    bytes: () => buildTar(times(400, index => [gnuLong('L', longName(index)), file('x', '', { fields: { magic: GNU } })]).flat()),
  },
  {
    name: 'long GNU link names',
    code: 'archive_too_large',
    bytes: () => buildTar(times(400, index => [gnuLong('K', 'x/'.repeat(2000)), symlink(`${index}`, 'x')]).flat()),
  },
  {
    name: 'long PAX paths',
    code: 'archive_too_large',
    bytes: () => buildTar(times(400, index => [pax({ path: longName(index) }), file('x')]).flat()),
  },
  {
    name: 'PAX headers of many tiny keys',
    code: 'archive_too_large',
    bytes: () => buildTar(times(33, index => [{ name: 'p', type: 'x', data: TINY_PAX.repeat(13_000) }, file(`${index}`)]).flat()),
  },
  {
    name: 'PAX headers with one long value each',
    code: 'archive_too_large',
    bytes: () => buildTar(times(33, index => [pax({ comment: 'x'.repeat(65_000) }), file(`${index}`)]).flat()),
  },
  {
    name: 'a chain of tiny PAX headers',
    code: 'archive_too_large',
    bytes: () => Buffer.concat([...times(5000, () => buildMember({ name: 'p', type: 'g', data: TINY_PAX })), TAR_END]),
  },
  {
    name: 'zeros after its end',
    code: 'invalid_archive',
    bytes: () => buildTar([file('a')], Buffer.alloc(2 * 1024 * 1024)),
  },
]

/** A path with 60 components and almost 4,000 bytes. */
function longName(index: number): string {
  return `${index}/${`${'n'.repeat(65)}/`.repeat(58)}n`
}
