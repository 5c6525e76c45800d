// Preloaded into an action: each time that the action asks for the time, the clock has moved by another JUMP_MS.
const Real = Date
const jumpMs = Number(process.env.JUMP_MS)
let offset = 0

globalThis.Date = class extends Real {
  constructor(...args) {
    super(...(args.length === 0 ? [Date.now()] : args))
  }
  static now() {
    offset += jumpMs
    return Real.now() + offset
  }
}
