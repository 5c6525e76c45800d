/** For each state, the states that may follow it. Any other transition is impossible. */
export type Transitions<State extends string> = Readonly<Record<State, readonly State[]>>

export interface StateChange<State extends string> {
  state: State
  /** ISO 8601, UTC. */
  at: string
}

export interface StateMachine<State extends string> {
  readonly current: State
  readonly history: readonly StateChange<State>[]
  /** Enters the state. Throws if the table does not have this transition: only a bug in this program can ask for it. */
  enter(state: State): StateChange<State>
}

export function createStateMachine<State extends string>(
  transitions: Transitions<State>,
  initial: State,
  now: () => Date,
): StateMachine<State> {
  let current = initial
  const history: StateChange<State>[] = [{ state: initial, at: now().toISOString() }]
  return {
    get current() {
      return current
    },
    history,
    enter(state) {
      if (!transitions[current].includes(state)) throw new Error(`No transition from ${current} to ${state}.`)
      current = state
      const change = { state, at: now().toISOString() }
      history.push(change)
      return change
    },
  }
}

/**
 * Returns the shortest path through the table: the states after `from`, up to and including `to`. The path is empty if
 * the two are the same state, or if no path leads from `from` to `to`.
 */
export function statesBetween(transitions: Transitions<string>, from: string, to: string): string[] {
  const ways = new Map<string, string[]>([[from, []]])
  for (const [state, way] of ways) {
    for (const next of statesAfter(transitions, state) ?? []) if (!ways.has(next)) ways.set(next, [...way, next])
  }
  return ways.get(to) ?? []
}

/** Returns undefined for a state that the table does not have, whatever its name: journals contain foreign names. */
export function statesAfter(transitions: Transitions<string>, state: string): readonly string[] | undefined {
  return Object.hasOwn(transitions, state) ? transitions[state] : undefined
}

/** The outcome of a run. `interrupted` and `inconsistent` never appear on the wire. */
export type Outcome = 'success' | 'failed' | 'rolled_back' | 'interrupted' | 'inconsistent'

/** The outcome as a report to the hub states it (contract 3, "Stated outcomes"). */
type ReportStatus = 'success' | 'failed' | 'rolled_back'

/** Returns the outcome for a report to the hub. `interrupted` and `inconsistent` become `failed`. */
export function reportStatusOf(outcome: Outcome): ReportStatus {
  switch (outcome) {
    case 'success':
      return 'success'
    case 'rolled_back':
      return 'rolled_back'
    case 'failed':
    case 'interrupted':
    case 'inconsistent':
      return 'failed'
  }
}
