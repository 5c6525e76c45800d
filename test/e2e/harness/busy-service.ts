import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { TestContext } from 'node:test'

/**
 * Services in Perl, because every Debian has Perl. Each loops as fast as it can and never ends by itself. `$place` is
 * the installed directory.
 */
const SERVICES = {
  /** Reaches the installed directory by its path, and creates the directory and its `data` if they are missing. */
  'that re-creates its directory and data whenever they are missing': `
    for (;;) { mkdir $place; mkdir "$place/data"; if (open my $log, ">>", "$place/data/log") { print $log "x"; } }`,
  /** Works in the tree in which it was started, wherever that tree is moved. */
  'that re-creates data in its working folder': `
    chdir $place; for (;;) { mkdir "data"; if (open my $log, ">>", "data/log") { print $log "x"; } }`,
  /** Repeatedly replaces the kept folder with a new folder. */
  'that repeatedly replaces the whole of data': `
    chdir $place;
    for (my $n = 0;; $n++) {
      mkdir "next"; if (open my $log, ">", "next/log") { print $log $n; }
      rename "data", "last"; rename "next", "data"; unlink "last/log"; rmdir "last";
    }`,
  /** Files of the installed version are missing half of the time. */
  'that renames its installed files back and forth': `
    chdir $place; for (;;) { rename "src", "last"; rename "last", "src"; }`,
}
export const BUSY_SERVICES = Object.keys(SERVICES) as (keyof typeof SERVICES)[]

/** The reason why these services cannot run here, for a test's `skip`; false if they can. */
export function whyNoPerl(): string | false {
  return spawnSync('perl', ['-e', '1']).status === 0 ? false : 'needs perl'
}

/** Runs a service in the installed directory `place` for as long as `act` takes. */
export async function whileBusy<T>(
  t: TestContext,
  { service, place }: { service: keyof typeof SERVICES; place: string },
  act: () => Promise<T>,
): Promise<T> {
  const script = `$| = 1; my $place = $ARGV[0]; print "busy\\n"; ${SERVICES[service]}`
  const child = spawn('perl', ['-e', script, place], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.after(() => child.kill('SIGKILL'))
  await once(createInterface({ input: child.stdout }), 'line')
  try {
    return await act()
  } finally {
    await ended(child)
  }
}

async function ended(child: ChildProcess): Promise<void> {
  const exit = once(child, 'exit')
  child.kill('SIGKILL')
  await exit
}
