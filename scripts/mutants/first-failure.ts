import { relative } from 'node:path'
import type { TestEvent } from 'node:test/reporters'

/** A reporter for `node --test` that prints `file: test` for each failure as soon as it happens, and nothing else. */
export default async function* report(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  for await (const { type, data } of events)
    if (type === 'test:complete' && !data.details.passed)
      yield `${relative(process.cwd(), data.file ?? data.name)}: ${data.name}\n`
}
