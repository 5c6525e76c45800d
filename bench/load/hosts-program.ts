import type { Target } from './host.ts'
import { type Hosts, runHosts } from './hosts.ts'

// This program runs the hosts of a load (JSON: target and hosts) and prints their tally.

const { target, hosts }: { target: Target; hosts: Hosts } = JSON.parse(process.argv[2] ?? '')
process.stdout.write(JSON.stringify(await runHosts(target, hosts)))
