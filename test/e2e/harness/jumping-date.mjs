// Preloaded into an action: its clock is AHEAD_MS ahead, and moves by another JUMP_MS each time that it is asked.
const Real = Date
const jumpMs = Number(process.env.JUMP_MS ?? 0)
let offset = Number(process.env.AHEAD_MS ?? 0)

globalThis.Date = class extends Real {
  constructor(...args) {
    super(...(args.length === 0 ? [Date.now()] : args))
  }
  static now() {
    offset += jumpMs
    return Real.now() + offset
  }
}
