// Loaded before an action: whenever a program asks for the date, somebody has just moved the clock by JUMP_MS.
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
