import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { TestContext } from 'node:test'
import { missingTools, whyRightsAreLeftToCi } from '../../extent.ts'

/** The user `nobody`, who owns only the files that a test gives to this user. */
const UID = 65534

/**
 * A Perl program that reads the path of a directory from each line of its input. In this directory, it swaps the
 * subfolders s0 to s7 for symlinks to the folders in its arguments and back, as fast as it can. It stops swapping after
 * 1,000 rounds, or after 300 failed renames, which show that the subfolders are gone. It is in Perl because every
 * Debian has Perl, and because another user may be unable to run Node, depending on where Node is installed.
 */
const SWAP = `
$| = 1;
while (my $directory = <STDIN>) {
  chomp $directory;
  chdir $directory or die "$directory: $!";
  print "swapping\\n";
  my $misses = 0;
  for (my $rounds = 0; $misses < 300 && $rounds < 1000; $rounds++) {
    for my $n (0 .. 7) {
      rename "s$n", "away$n" or $misses++;
      symlink $ARGV[$n % @ARGV], "s$n";
      unlink "s$n";
      rename "away$n", "s$n";
    }
  }
  chdir "/";
  print "done\\n";
}
`

/** A process of another user that swaps subfolders for symlinks while a test works on the same directory. */
export interface FolderSwapper {
  /** Makes the process enter the directory and begin to swap. Resolves when the process has begun to swap. */
  enter(directory: string): Promise<void>
  /** Resolves when the process has stopped swapping in the directory. */
  done(): Promise<void>
  /** Kills the process. Resolves when it has ended; only then can its folders be removed. */
  end(): Promise<void>
}

/** The reason why no swapper can run here, for a test's `skip`; false if one can. */
export function whyNoSwapper(): string | false {
  const left = whyRightsAreLeftToCi()
  if (left !== false) return left
  return process.getuid?.() === 0 ? missingTools('setpriv', 'perl') : 'needs root'
}

/** Starts a swapper whose symlinks lead to these folders. The swapper ends with the test. */
export function startSwapper(t: TestContext, ...targets: readonly string[]): FolderSwapper {
  const id = String(UID)
  const user = ['--reuid', id, '--regid', id, '--clear-groups']
  const child = spawn('setpriv', [...user, 'perl', '-e', SWAP, ...targets], { stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = once(child, 'exit')
  const end = async (): Promise<void> => {
    child.kill('SIGKILL')
    await ended
  }
  t.after(end)
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const hear = async (): Promise<void> => {
    const { done } = await lines.next()
    if (done) throw new Error('the swapper has ended')
  }
  return {
    async enter(directory) {
      child.stdin.write(`${directory}\n`)
      await hear()
    },
    done: hear,
    end,
  }
}

/** A directory that belongs to the swapper, with subfolders to swap. */
export function makeSwappable(directory: string): void {
  mkdirSync(directory)
  chownSync(directory, UID, UID)
  for (let n = 0; n < 8; n++) {
    const folder = join(directory, `s${n}`)
    mkdirSync(join(folder, 'deeper'), { recursive: true })
    for (const path of [folder, join(folder, 'deeper')]) chownSync(path, UID, UID)
  }
}
