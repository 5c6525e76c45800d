import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { boundaryOf, readParts } from '../../../hub/http/bodies.ts'

const HEAD = 'Content-Disposition: form-data; name='

describe('readParts', () => {
  const binary = Buffer.concat([Buffer.from([0, 255, 13, 10, 45, 45]), Buffer.from('--B\r\n-\r\n--\r\n--A\r')])
  const form = Buffer.concat([
    Buffer.from(`--B\r\n${HEAD}"version"\r\n\r\n1.0.0\r\n--B\r\n`),
    Buffer.from(`content-type: a/b\r\n${HEAD.toUpperCase()}file; filename="x y.bin"\r\n\r\n`),
    binary,
    Buffer.from(`\r\n--B\r\n${HEAD}"empty"\r\n\r\n\r\n--B--\r\nepilogue`),
  ])

  for (const size of [1, 2, 3, 7, 64, 10_000]) {
    it(`finds the same parts in chunks of ${size} bytes`, async () => {
      const found = await partsOf(form, size)
      assert.deepEqual(found, [
        ['version', Buffer.from('1.0.0')],
        ['file', binary],
        ['empty', Buffer.alloc(0)],
      ])
    })
  }

  it('skips a part that is not read', async () => {
    const names = []
    for await (const { name } of readParts(cut(form, 5), 'B')) names.push(name)
    assert.deepEqual(names, ['version', 'file', 'empty'])
  })

  it('accepts a form without parts', async () => {
    assert.deepEqual(await partsOf(Buffer.from('--B--\r\n')), [])
  })

  for (const [name, body, fault] of [
    ['an empty body', '', 'ends before its last boundary'],
    [
      'bytes before the first part',
      `x\r\n--B\r\n${HEAD}"a"\r\n\r\n1\r\n--B--`,
      'does not begin with the boundary that its Content-Type names',
    ],
    [
      'another boundary',
      `--C\r\n${HEAD}"a"\r\n\r\n1\r\n--C--`,
      'does not begin with the boundary that its Content-Type names',
    ],
    [
      'a boundary with more text after it',
      `--Bx\r\n${HEAD}"a"\r\n\r\n1\r\n--B--`,
      'has a boundary that is not followed by a line break',
    ],
    ['a missing last boundary', `--B\r\n${HEAD}"a"\r\n\r\n1\r\n--B\r\n`, 'ends before its last boundary'],
    ['a truncated part', `--B\r\n${HEAD}"a"\r\n\r\n1`, 'ends before its last boundary'],
    ['truncated headers', `--B\r\n${HEAD}"a"\r\n`, 'ends before its last boundary'],
    ['line endings without CR', `--B\n${HEAD}"a"\n\n1\n--B--`, 'has a boundary that is not followed by a line break'],
    ['a part without headers', '--B\r\n\r\n\r\n\r\n1\r\n--B--', 'has a part without a valid name'],
    [
      'a part without a name',
      '--B\r\nContent-Disposition: form-data; filename="name=x"\r\n\r\n1\r\n--B--',
      'has a part without a valid name',
    ],
    ['an empty name', `--B\r\n${HEAD}""\r\n\r\n1\r\n--B--`, 'has a part without a valid name'],
    [
      'an attachment',
      '--B\r\nContent-Disposition: attachment; name="a"\r\n\r\n1\r\n--B--',
      'has a part without a valid name',
    ],
    ['an unclosed quote', `--B\r\n${HEAD}"a\r\n\r\n1\r\n--B--`, 'has a part without a valid name'],
    [
      'headers of 9 KB',
      `--B\r\n${HEAD}"a"\r\nX: ${'x'.repeat(9_000)}\r\n\r\n1\r\n--B--`,
      'has a part with more than 8192 bytes of headers',
    ],
    ['21 parts', `${`--B\r\n${HEAD}"a"\r\n\r\n1\r\n`.repeat(21)}--B--`, 'has more than 20 parts'],
  ] as const) {
    it(`refuses ${name}`, async () => {
      await assert.rejects(partsOf(Buffer.from(body)), {
        status: 400,
        message: `The multipart body ${fault}.`,
      })
    })
  }

  it('reads no further than it must to refuse endless bytes before the first part', async () => {
    let read = 0
    async function* endless() {
      for (;;) {
        read += 65_536
        yield Buffer.alloc(65_536, '-')
      }
    }
    await assert.rejects(
      async () => {
        for await (const _ of readParts(endless(), 'B'));
      },
      { status: 400 },
    )
    assert.ok(read <= 3 * 65_536, `${read} bytes`)
  })

  it('reads hostile headers in linear time', async () => {
    const headers = `${HEAD}${'"a"; x='.repeat(1_000)}`
    await assert.rejects(partsOf(Buffer.from(`--B\r\n${headers}\r\n\r\n1\r\n--B--`)), { status: 400 })
  })
})

describe('boundaryOf', () => {
  for (const [contentType, boundary] of [
    ['multipart/form-data; boundary=abc', 'abc'],
    ['Multipart/Form-Data;BOUNDARY="a b"', undefined],
    ['multipart/form-data; boundary="a(b)/c"', 'a(b)/c'],
    ['multipart/form-data; charset=utf-8; boundary=----WebKit7', '----WebKit7'],
    ['multipart/form-data; boundary=a; charset=utf-8', 'a'],
    ['multipart/form-data', undefined],
    ['multipart/form-data; boundary=', undefined],
    [`multipart/form-data; boundary=${'x'.repeat(71)}`, undefined],
    ['multipart/mixed; boundary=a', undefined],
    ['application/json', undefined],
  ] as const) {
    it(`of ${JSON.stringify(contentType).slice(0, 60)} is ${boundary}`, () =>
      assert.equal(boundaryOf(contentType), boundary))
  }
})

async function partsOf(body: Buffer, size = 10_000): Promise<[string, Buffer][]> {
  const found: [string, Buffer][] = []
  for await (const { name, chunks } of readParts(cut(body, size), 'B')) {
    const pieces: Buffer[] = []
    for await (const chunk of chunks) pieces.push(Buffer.from(chunk))
    found.push([name, Buffer.concat(pieces)])
  }
  return found
}

async function* cut(body: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < body.length; at += size) yield body.subarray(at, at + size)
}
