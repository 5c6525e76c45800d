import { UsageError } from '../../hub/errors.ts'
import type { ListingId } from '../../hub/marketplace/catalogue.ts'
import { faultOf, isLoopback } from '../../src/net/policy.ts'
import type { Host } from '../workflow.ts'

/** What the operator wants to deploy, from where, and to which hosts. */
export interface Wish {
  readonly part: ListingId
  readonly hubUrl: string
  readonly hosts: readonly [Host, ...Host[]]
}

/** Throws UsageError for a URL with which a deployment would be refused. */
export function parseHubUrl(text: string): string {
  const url = URL.parse(text)
  const fault = url === null ? 'no URL' : faultOf(url)
  if (url === null || fault !== undefined || /[\s"'#?{}]/.test(text))
    throw new UsageError(`The option --hub-url must be like https://hub.example.com, not ${JSON.stringify(text)}.`)
  if (url.protocol === 'http:' && !isLoopback(url.hostname))
    throw new UsageError('The option --hub-url must begin with https://: a deployment refuses plain http.')
  return text
}

const HOST = /^([A-Za-z0-9][A-Za-z0-9_.-]{0,62})=((?:\/(?!\.{1,2}(?:\/|$))[A-Za-z0-9_.@+-]+)+)$/

/** Throws UsageError unless there is a host, and each has its own name and an absolute root that no shell changes. */
export function parseHosts(texts: readonly string[]): [Host, ...Host[]] {
  const hosts = texts.map(text => {
    const [, name, root] = HOST.exec(text) ?? []
    if (name === undefined || root === undefined)
      throw new UsageError(
        `The option --host must be NAME=ROOT, such as app-1=/srv/app, not ${JSON.stringify(text)}: NAME is a runner's label, ROOT an absolute path (letters, digits, "_.@+-").`,
      )
    return { name, root }
  })
  const [first, ...others] = hosts
  if (first === undefined) throw new UsageError('The option --host is required, for example --host app-1=/srv/app.')
  const twice = hosts.find(({ name }, at) => hosts.findIndex(each => each.name === name) !== at)
  if (twice !== undefined) throw new UsageError(`The option --host names ${twice.name} twice: remove one.`)
  return [first, ...others]
}
