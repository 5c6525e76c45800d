import { writeFileSync } from 'node:fs'
import { monitorEventLoopDelay } from 'node:perf_hooks'

// A preload (`node --import`): writes the longest time, in milliseconds, that the event loop of the process was blocked
// to the file that LOOP_DELAY_FILE names. Loading the program does not count: nothing is under way yet.

const RESOLUTION_MS = 1
const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
delay.enable()
process.once('exit', () => {
  const file = process.env['LOOP_DELAY_FILE']
  if (file !== undefined) writeFileSync(file, String(Math.max(0, delay.max / 1e6 - RESOLUTION_MS)))
})
