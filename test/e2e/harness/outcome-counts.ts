/** The number of times that each outcome was seen: `failed 3, success 12`. */
export function countOutcomes(outcomes: readonly string[]): string {
  const counts = Map.groupBy(outcomes.toSorted(), outcome => outcome)
  return [...counts].map(([outcome, { length }]) => `${outcome} ${length}`).join(', ')
}
