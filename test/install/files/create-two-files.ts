import { createFile } from '../../../src/install/files/durable.ts'

/** Tries twice to create the file that its argument names, and prints both results. A test runs this under strace. */
const path = process.argv[2] as string
console.log(JSON.stringify([await createFile(path, 'first'), await createFile(path, 'second')]))
