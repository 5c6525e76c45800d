import { type Hosts, runHosts, type Target } from './hosts.ts'

// This program runs the hosts of a load (JSON: target and hosts) and prints their tally.

const { target, hosts }: { target: Target; hosts: Hosts } = JSON.parse(process.argv[2] ?? '')
process.stdout.write(JSON.stringify(await runHosts(target, hosts)))
