import type { Store } from '../../hub/store.ts'

/** SQLite's plan for each statement that the work prepares, with a line for each step. */
export function plansOf(store: Store, work: () => unknown): string[] {
  const plans: string[] = []
  const prepare = store.db.prepare.bind(store.db)
  const noting = (sql: string) => {
    plans.push(
      ...prepare(`EXPLAIN QUERY PLAN ${sql}`)
        .all()
        .map(row => String(row['detail'])),
    )
    return prepare(sql)
  }
  Object.assign(store.db, { prepare: noting })
  work()
  Object.assign(store.db, { prepare })
  return plans
}
