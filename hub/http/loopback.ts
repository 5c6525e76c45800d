import { BlockList, isIP } from 'node:net'

const loopback = new BlockList()
loopback.addSubnet('127.0.0.0', 8, 'ipv4')
loopback.addAddress('::1', 'ipv6')

/** True if a name or address always means this machine. */
export function isLoopbackHost(host: string): boolean {
  const version = isIP(host)
  if (version === 0) return host.toLowerCase() === 'localhost'
  return loopback.check(host, version === 4 ? 'ipv4' : 'ipv6')
}

/**
 * Works like isLoopbackHost, but for a Host header. An IPv6 address is in brackets there, and a port may follow the
 * host.
 */
export function isLoopbackAuthority(authority: string | undefined): boolean {
  const [, bracketed, plain] = /^(?:\[([^\]]*)\]|([^:]*))(?::\d+)?$/.exec(authority ?? '') ?? []
  return isLoopbackHost(bracketed ?? plain ?? '')
}
