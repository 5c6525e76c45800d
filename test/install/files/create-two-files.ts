import { createFile } from '../../../src/install/files/durable-files.ts'

/** Creates the file of its argument twice, and prints both results; run under strace. */
const path = process.argv[2] as string
console.log(JSON.stringify([await createFile(path, 'first'), await createFile(path, 'second')]))
