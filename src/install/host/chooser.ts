/**
 * Who chose the directory or the id of a part. `operator` chose it for this run. `host` means the host's own file, our
 * record or the default. `publisher` is the publisher of a project. `rollback` means that a version is restored with
 * its former directory or id.
 */
export type Chooser = 'operator' | 'host' | 'publisher' | 'rollback'

/** Advice for the reader of an error, as a clause: how to install a part in a different directory. */
export const CHOOSE_ANOTHER: Readonly<Record<Chooser, string>> = {
  operator: 'choose another plugins directory',
  host: 'choose another plugins directory',
  publisher: 'ask the publisher for another plugins_dirname',
  rollback: 'roll back to another version',
}

/** Advice for the reader of an error, as a clause: how to leave a part in its current directory. */
export const KEEP_PREVIOUS: Readonly<Record<Chooser, string>> = {
  operator: 'keep the previous plugins directory',
  host: 'keep the previous plugins directory',
  publisher: 'ask the publisher to keep the previous plugins_dirname',
  rollback: 'roll back to another version',
}
