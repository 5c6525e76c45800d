import { writeFileSync } from 'node:fs'
import { monitorEventLoopDelay } from 'node:perf_hooks'

// A preload for `node --import`. When the process exits, it writes the longest block of the process's event loop, in
// milliseconds, to the file that LOOP_DELAY_FILE names. The time to load the program does not count, because nothing
// can be cancelled yet.

const RESOLUTION_MS = 1
const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
delay.enable()
process.once('exit', () => {
  const file = process.env['LOOP_DELAY_FILE']
  if (file !== undefined) writeFileSync(file, String(Math.max(0, delay.max / 1e6 - RESOLUTION_MS)))
})
