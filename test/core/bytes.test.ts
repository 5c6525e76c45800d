import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { byteShortage } from '../../src/core/bytes.ts'

const MIB = 1024 * 1024

describe('byteShortage', () => {
  const rows: [string, number, number, string, string][] = [
    ['mebibytes', 12.34 * MIB, 45.6 * MIB, '12.3 MiB', '45.6 MiB'],
    ['gibibytes at 1024 MiB and above', 300 * MIB, 1024 * MIB, '0.2 GiB', '1 GiB'],
    ['mebibytes below 1024 MiB', 300 * MIB, 1023 * MIB, '300 MiB', '1023 MiB'],
    ['kibibytes below one mebibyte', 2048, 300 * 1024, '2 KiB', '300 KiB'],
    ['a need of one byte', 0, 1, '0 KiB', '0.1 KiB'],
    ['a disk with nothing left', 0, MIB, '0 MiB', '1 MiB'],
    ['a need that is almost met', 45.61 * MIB, 45.62 * MIB, '45.6 MiB', '45.7 MiB'],
  ]
  for (const [name, freeBytes, neededBytes, free, needed] of rows) {
    it(`formats ${name}`, () => assert.deepEqual(byteShortage(freeBytes, neededBytes), { free, needed }))
  }
})
