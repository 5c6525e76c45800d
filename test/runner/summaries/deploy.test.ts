import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { DeploymentError, type ErrorCode } from '../../../src/core/errors.ts'
import { SourceError } from '../../../src/core/yaml/problems.ts'
import type { LocalReport } from '../../../src/install/reports/local-report.ts'
import { buildDeploySummary, type SummaryFacts } from '../../../src/runner/summaries/deploy.ts'
import { reportOf } from '../../install/prepared-host.ts'

const HOSTILE =
  'x|y`z\n# h\r<img src=x onerror=alert(1)> [a](http://b) ::error:: ##[group] @team **b** \u202e ~~s~~ \\| &lt;'

function hostileFacts(): SummaryFacts {
  const step = { id: HOSTILE, action: 'prepare', status: 'failed' as const, duration_ms: 1, error: HOSTILE }
  return {
    report: reportOf({
      slug: HOSTILE,
      version: HOSTILE,
      previous_version: HOSTILE,
      requested_version: HOSTILE,
      artifact_sha256: HOSTILE,
      repo: HOSTILE,
      drift: [{ shelf: 'plugins', id: 'greeter', version: HOSTILE, added: [HOSTILE], removed: [], changed: [] }],
      host_id: HOSTILE,
      deployment_id: HOSTILE,
      outcome: 'inconsistent',
      states: [{ state: HOSTILE, at: '2026-01-02T03:04:05.678Z' }],
      steps: [step],
      error: { code: 'step_failed', message: HOSTILE, step: HOSTILE },
      rollback: { restored: false, problems: [HOSTILE], verified: false, healthy: null },
      reported: { accepted: false, attempts: 1, error: HOSTILE },
    }),
    reportPath: HOSTILE,
    plannedSteps: [{ id: HOSTILE, action: 'prepare' }],
  }
}

/** The number of these characters in a text. */
function countIn(text: string, characters: RegExp): number {
  return text.match(characters)?.length ?? 0
}

describe('buildDeploySummary', () => {
  it('shows hostile text in any field without giving it any effect', () => {
    const hostile = buildDeploySummary(hostileFacts())
    const harmless = buildDeploySummary(
      JSON.parse(JSON.stringify(hostileFacts()).replaceAll(JSON.stringify(HOSTILE), '"plain"')),
    )
    for (const characters of [/\|/g, /\n/g, /</g, />/g, /`/g, /\*/g, /\[/g, /@/g, /\\/g, /\u202e/g, /\r/g]) {
      assert.equal(countIn(hostile, characters), countIn(harmless, characters), String(characters))
    }
    assert.match(hostile, /onerror/)
  })

  it('starts with the outcome, the versions and the host', () => {
    const [headline] = buildDeploySummary({ report: reportOf(), plannedSteps: [] }).split('\n')
    for (const part of ['✅', 'greeter', '1.0.0 → 2.0.0', 'host-1']) assert.ok(headline?.includes(part), part)
  })

  it('shows how long the commit and the rollback took, and subtracts both from the duration of the preceding state', () => {
    const at = (second: number): string => `2026-01-02T03:04:0${second}.000Z`
    const states = [
      { state: 'pending', at: at(0) },
      { state: 'installing', at: at(1) },
      { state: 'rolled_back', at: at(9) },
    ]
    const lineOf = (took: Record<string, number>): string =>
      /^pending .*$/m.exec(
        buildDeploySummary({ report: reportOf({ states }), plannedSteps: [], took: new Map(Object.entries(took)) }),
      )?.[0] ?? ''
    assert.equal(lineOf({ installing: 2000 }), 'pending 1 s → installing 8 s → rolled&#95;back')
    assert.equal(
      lineOf({ installing: 2000, committing: 1000, 'rolling back': 5000 }),
      'pending 1 s → installing 2 s → committing 1 s → rolling back 5 s → rolled&#95;back',
    )
  })

  it("separates the wait for another run from the run's own work, and escapes the other run's name", () => {
    const at = (second: number): string => `2026-01-02T03:04:0${second}.000Z`
    const states = [
      { state: 'pending', at: at(0) },
      { state: 'fetching', at: at(8) },
      { state: 'failed', at: at(9) },
    ]
    const waited = { duration_ms: 7000, for: 'process 7 to deploy <b>x</b> 1' }
    const summary = buildDeploySummary({ report: reportOf({ states, waited }), plannedSteps: [] })
    const line = /^pending .*$/m.exec(summary)?.[0] ?? ''
    assert.match(line, /^pending 1 s → waited 7 s for another deployment \(process 7 .*\) → fetching 1 s/)
    assert.ok(!line.includes('<b>'), line)
  })

  it('omits the warning about the refused report if the refusal is the cause of the failure', () => {
    const reported = { accepted: false, attempts: 1, error: 'The hub answered 403.' }
    const error = new DeploymentError('report_refused', 'Version 2.0.0 stays. The hub answered 403.')
    const notes = [{ level: 'warning', text: 'The hub did not accept the report: The hub answered 403.' } as const]
    const facts = { report: reportOf({ reported }), plannedSteps: [], notes }
    assert.match(buildDeploySummary(facts), /\[!WARNING\]/)
    assert.doesNotMatch(buildDeploySummary({ ...facts, error }), /\[!WARNING\]/)
  })

  it('calls a deployment onto a host without a previous version a first install', () => {
    const [headline] = buildDeploySummary({ report: reportOf({ previous_version: null }), plannedSteps: [] }).split(
      '\n',
    )
    assert.match(headline ?? '', /First install of greeter 2\.0\.0 on host-1/)
  })

  const drift = [
    { shelf: 'plugins', id: 'greeter', version: '2.0.0', added: [], removed: [], changed: ['main.py'], omitted: 7 },
  ] as const
  const added = [{ ...drift[0], changed: [], added: ['a', 'b'], omitted: undefined }]
  const done = { id: 'files', action: 'install_plugin', status: 'done', duration_ms: 1, error: null } as const
  const written = { ...done, id: 'env', action: 'write_env' } as const
  const moves = {
    'is already on host-1, unmodified': { changed: false },
    'was repaired on host-1': { changed: true, drift, steps: [done] },
    'was already on host-1, and was installed again': { changed: true, drift: added, steps: [done] },
    'was already on host-1; its settings were written': { changed: true, drift: added, steps: [written] },
    'is already on host-1, but its files differ from what was installed': { changed: false, drift },
    'is already on host-1; 2 files were added on this host': { changed: false, drift: added },
    'is already on host-1; at least 4 files were added on this host': {
      changed: false,
      drift: [...added, { ...added[0], uncounted: true }],
    },
  }
  for (const [words, facts] of Object.entries(moves)) {
    it(`says that the same version ${words}`, () => {
      const same = { previous_version: '2.0.0', version: '2.0.0', state: 'succeeded' }
      const report = reportOf({ ...same, ...JSON.parse(JSON.stringify(facts)) })
      const summary = buildDeploySummary({ report, plannedSteps: [] })
      assert.ok(summary.split('\n')[0]?.includes(`greeter 2.0.0 ${words}`), summary)
      assert.equal(
        summary.includes('<code>plugins/greeter/main.py</code> (changed) and 7 more.'),
        'drift' in facts && facts.drift === drift,
      )
    })
  }

  it('names both versions if a new version of a project changes no part', () => {
    const facts = { previous_version: '1.0.0', version: '2.0.0', state: 'succeeded', changed: false } as const
    const [headline] = buildDeploySummary({ report: reportOf(facts), plannedSteps: [] }).split('\n')
    assert.match(headline ?? '', /greeter 1\.0\.0 → 2\.0\.0 on host-1; no part changed/)
  })

  describe('of edited files', () => {
    const snapshot = '.hub-deploy/snapshots/plugins/greeter/1-1.0.0'
    const replaced = { ...drift[0], omitted: undefined, snapshot }
    const kept = { ...replaced, id: 'mailer', changed: [], added: ['notes.txt'], snapshot: undefined }
    const editedIn = (facts: object): string[] =>
      buildDeploySummary({ report: reportOf(JSON.parse(JSON.stringify(facts))), plannedSteps: [] })
        .split('\n')
        .filter(line => line.includes('Edited on this host'))

    it('names a snapshot only for files that were replaced', () => {
      const [first = '', second = '', ...others] = editedIn({ drift: [replaced, kept] })
      assert.match(first, /greeter\/main\.py.* This deployment replaced them; they are kept in .*1-1\.0\.0/)
      assert.doesNotMatch(first, /mailer/)
      assert.match(second, /mailer\/notes\.txt<\/code> \(added\)\.\\?$/)
      assert.deepEqual(others, [])
    })

    const restored = { restored: true, problems: [], verified: true, healthy: null }
    const fates = {
      'a dry run': [
        { changed: false, state: 'resolving_sequence' },
        / A real run would keep, in a snapshot, the files that it replaces/,
      ],
      'a run that changed nothing': [{ outcome: 'failed' }, / They are as they were before this run\.$/],
      'a rollback': [{ outcome: 'rolled_back', rollback: restored }, / They are as they were before this run\.$/],
      'a rollback that could not compare the files': [
        { outcome: 'rolled_back', rollback: { ...restored, verified: null } },
        / They are as they were before this run\.$/,
      ],
      'a rollback that found a difference': [
        { outcome: 'rolled_back', rollback: { ...restored, verified: false } },
        /\(added\)\.$/,
      ],
      'a rollback whose result is unknown': [{ outcome: 'rolled_back' }, /\(added\)\.$/],
      'a run that was killed': [{ outcome: 'interrupted' }, /\(added\)\.$/],
      'a run that left neither version intact': [
        { outcome: 'inconsistent', rollback: { ...restored, restored: false } },
        /\(added\)\.$/,
      ],
    } as const
    for (const [run, [facts, line]] of Object.entries(fates))
      it(`names only known facts about them after ${run}`, () => {
        const lines = editedIn({ ...facts, drift: [kept] })
        assert.equal(lines.length, 1)
        assert.match(lines[0] ?? '', line)
      })
  })

  const words = {
    success: /greeter 1\.0\.0 → 2\.0\.0/,
    failed: /was not installed on host-1/,
    rolled_back: /was rolled back on host-1; 1\.0\.0 is installed again/,
    interrupted: /was interrupted/,
    inconsistent: /was refused on host-1, whose state is uncertain/,
  } as const
  for (const [outcome, word] of Object.entries(words)) {
    it(`says ${outcome} in words`, () => {
      const report = reportOf({ outcome: outcome as keyof typeof words })
      assert.match(buildDeploySummary({ report, plannedSteps: [] }).split('\n')[0] as string, word)
    })
  }

  it('does not claim that a run has harmed a host whose state was already uncertain', () => {
    const error = { code: 'inconsistent' as const, message: 'installed.json is not a record.', step: null }
    const summary = buildDeploySummary({ report: reportOf({ outcome: 'inconsistent', error }), plannedSteps: [] })
    assert.match(summary, /^### 🛑 greeter 2\.0\.0 was refused on host-1, whose state is uncertain: repair the host\n/)
    assert.match(summary, /^\*\*Now:\*\* not certain until this host is repaired; this run installed nothing\.$/m)
    assert.doesNotMatch(summary, /neither/)
    const undone = reportOf({ outcome: 'inconsistent', error, rollback_of: '2.0.0' })
    assert.match(
      buildDeploySummary({ report: undone, plannedSteps: [] }),
      /^### 🛑 The rollback of greeter was refused on/,
    )
    const headlineOf = (code: ErrorCode, facts: Parameters<typeof reportOf>[0]): string | undefined => {
      const report = reportOf({ outcome: 'inconsistent', error: { ...error, code }, ...facts })
      return buildDeploySummary({ report, plannedSteps: [] }).split('\n')[0]
    }
    const end = 'on host-1, whose state is uncertain: repair the host'
    const unnamed = { slug: null, id: null, version: null, requested_version: null }
    assert.equal(headlineOf('missing_input', unnamed), `### 🛑 This deployment was refused ${end}`)
    assert.equal(headlineOf('network', {}), `### 🛑 greeter 2.0.0 could not be fetched ${end}`)
    const rollback = { restored: false, problems: ['it is gone'], verified: null, healthy: null }
    const report = reportOf({ outcome: 'inconsistent', error, rollback })
    assert.match(buildDeploySummary({ report, plannedSteps: [] }), /neither the old nor the new version/)
  })

  it('writes a sentence only once if it is both the cause and a problem of the rollback', () => {
    const rollback = { restored: true, problems: ['it said no'], verified: true, healthy: false }
    const error = { code: 'step_failed' as const, message: 'it said no', step: 'restart' }
    const summary = buildDeploySummary({
      report: reportOf({ outcome: 'rolled_back', error, rollback }),
      plannedSteps: [],
    })
    assert.equal(summary.split('it said no').length, 2, summary)
  })

  for (const [healthy, sentence] of [
    [true, /^\*\*Now:\*\* 1\.0\.0, .*healthy according to the checks of this plan\.\n\n- it answers 500\.$/m],
    [false, /^### .*\n\n> \[!CAUTION\]\n> \*\*.*1\.0\.0, which is installed again, is not healthy.*it answers 500/],
    [null, /^\*\*Now:\*\* 1\.0\.0, all files as they were installed\.\n\n- it answers 500\.$/m],
  ] as const) {
    it(`describes the old version's health after a rollback: ${healthy}`, () => {
      const rollback = { restored: true, problems: ['it answers 500'], verified: true, healthy }
      const summary = buildDeploySummary({
        report: reportOf({ outcome: 'rolled_back', rollback, running_version: '1.0.0' }),
        plannedSteps: [],
      })
      assert.match(summary, sentence)
      assert.equal(summary.split('it answers 500').length, 2, summary)
    })
  }

  for (const text of ['see https://evil.example/x', 'HTTP://evil.example', 'www.evil.example', 'WWW.evil.example'])
    it(`makes no link from ${text}`, () => {
      const summary = buildDeploySummary({
        report: reportOf({ outcome: 'failed', error: { code: 'artifact_unavailable', message: text, step: null } }),
        plannedSteps: [],
      })
      assert.match(summary, /evil/)
      assert.doesNotMatch(summary, /:\/\/evil|www\.evil/i)
    })

  describe('of a refused plan', () => {
    const summaryOf = (count: number): string => {
      const problems = Array.from({ length: count }, (_, index) => ({
        message: `problem ${index + 1} | x`,
        file: 'install.yaml',
        line: index + 1,
        column: 3,
      }))
      const error = new SourceError('invalid_plan', 'The plan', problems)
      return buildDeploySummary({ report: reportOf({ outcome: 'failed' }), plannedSteps: [], error })
    }

    it('lists every problem with its position', () => {
      assert.match(
        summaryOf(2),
        /^- <code>install\.yaml:1:3<\/code> problem 1 &#124; x\n- <code>install\.yaml:2:3<\/code> problem 2 &#124; x$/m,
      )
    })

    it('lists at most thirty problems and says how many more there are', () => {
      assert.equal(summaryOf(30).match(/^- /gm)?.length, 30)
      assert.match(summaryOf(33), /problem 30 .*\n- and 3 more/)
      assert.doesNotMatch(summaryOf(33), /problem 31/)
    })
  })

  it('distinguishes a run that changed nothing from a dry run', () => {
    const summaryOf = (state: string): string =>
      buildDeploySummary({ report: reportOf({ changed: false, state }), plannedSteps: [] })
    assert.match(summaryOf('succeeded'), /greeter 1\.0\.0 → 2\.0\.0 on host-1; no part changed/)
    assert.match(summaryOf('resolving_sequence'), /### 🔎 Dry run: greeter 1\.0\.0 → 2\.0\.0 on host-1/)
  })

  it('names the steps for which nothing changes, but not those that started a service', () => {
    const entry = { duration_ms: 1, error: null }
    const summary = buildDeploySummary({
      report: reportOf({
        changed: false,
        steps: [
          { ...entry, id: 'down', action: 'stop', status: 'skipped' },
          { ...entry, id: 'up', action: 'restart', status: 'done' },
        ],
      }),
      plannedSteps: [
        { id: 'down', action: 'stop', isIdle: true },
        { id: 'up', action: 'restart', isIdle: true },
        { id: 'on', action: 'start', isIdle: true },
      ],
    })
    const [line] = summary.split('\n').filter(found => found.includes('skipped:'))
    assert.match(line ?? '', /^<code>down<\/code> \(stop\) was skipped: nothing changes for it\. .*redeploy/)
  })

  it('names the provision steps, which no rollback can undo', () => {
    const entry = { duration_ms: 1, error: null, action: 'provision' }
    const rollback = { restored: true, problems: [], verified: true, healthy: null }
    const steps = [
      { ...entry, id: 'db', status: 'done' as const },
      { ...entry, id: 'seed', status: 'failed' as const },
      { ...entry, id: 'late', status: 'not_run' as const },
    ]
    const lineOf = (facts: Parameters<typeof reportOf>[0]): string | undefined =>
      buildDeploySummary({ report: reportOf({ steps, ...facts }), plannedSteps: [] })
        .split('\n')
        .find(line => line.includes('not undone'))
    assert.match(
      lineOf({ outcome: 'rolled_back', rollback }) ?? '',
      /: <code>db<\/code>, <code>seed<\/code> \(failed\)\.$/,
    )
    assert.match(lineOf({ outcome: 'failed', changed: false }) ?? '', /db.*seed/)
    assert.equal(lineOf({ outcome: 'success' }), undefined)
  })

  it('does not call a host unchanged if steps have run without changing a file', () => {
    const entry = { duration_ms: 1, error: null, id: 'up', action: 'restart' }
    const same = { previous_version: '2.0.0', changed: false }
    const headlineOf = (facts: Parameters<typeof reportOf>[0], isIdle = false): string =>
      buildDeploySummary({
        report: reportOf({ ...same, state: 'succeeded', steps: [{ ...entry, status: 'done' }], ...facts }),
        plannedSteps: [{ id: 'up', action: 'restart', isIdle }],
      }).split('\n')[0] as string
    assert.match(headlineOf({}), /already on host-1; its steps were run again/)
    assert.match(headlineOf({}, true), /already on host-1; up started services that were not running/)
    assert.match(headlineOf({ steps: [{ ...entry, status: 'skipped' }] }, true), /already on host-1, unmodified/)
    assert.match(headlineOf({ outcome: 'failed' }), /failed on host-1; no file was changed/)
  })

  for (const [action, isNamed] of [
    ['restart', true],
    ['stop', false],
  ] as const)
    it(`says for a dry run that a ${action} that would be skipped ${isNamed ? 'may' : 'does not'} start a service`, () => {
      const plannedSteps = [{ id: 'up', action, isIdle: true }]
      const summary = buildDeploySummary({ report: reportOf({ steps: [] }), plannedSteps })
      const said = /would be skipped: nothing changes for it\. A service that is not running would be started\./
      assert.equal(said.test(summary), isNamed, summary)
    })

  it('does not say that a step was skipped if it failed or was not reached', () => {
    const entry = { duration_ms: 1, error: null }
    const summary = buildDeploySummary({
      report: reportOf({
        outcome: 'failed',
        steps: [
          { ...entry, id: 'down', action: 'stop', status: 'skipped' },
          { ...entry, id: 'up', action: 'restart', status: 'failed' },
          { ...entry, id: 'tell', action: 'notify', status: 'not_run' },
        ],
      }),
      plannedSteps: [
        { id: 'down', action: 'stop', isIdle: true },
        { id: 'up', action: 'restart', isIdle: true },
        { id: 'tell', action: 'notify', isIdle: true },
      ],
    })
    const [line] = summary.split('\n').filter(found => found.includes('skipped:'))
    assert.match(line ?? '', /^<code>down<\/code> \(stop\) was skipped: /)
  })

  it('says that a version was installed only if a part was moved', () => {
    const ok = { ...done, id: 'ok', action: 'healthcheck', checked: ['greeter'] }
    const lineOf = (...steps: LocalReport['steps']): string | undefined =>
      buildDeploySummary({ report: reportOf({ steps: [...steps, ok] }), plannedSteps: [] }).split('\n')[2]
    assert.equal(lineOf(done), 'Installed and healthy after 1.3 s.')
    assert.equal(lineOf({ ...done, action: 'remove' }), 'Installed and healthy after 1.3 s.')
    assert.equal(lineOf({ ...done, status: 'unchanged' }, written), 'Done and healthy after 1.3 s.')
  })

  describe('of health', () => {
    const step = { duration_ms: 1, error: null, status: 'done' as const }
    const installs = ['cart', 'till', 'mailer'].map(id => ({ ...step, id, action: 'install_plugin' }))
    const summaryOf = (checked: string[], parts = 3): string =>
      buildDeploySummary({
        report: reportOf({
          steps: [...installs.slice(0, parts), { ...step, id: 'ok', action: 'healthcheck', checked }],
        }),
        plannedSteps: [],
      })

    it('calls a version healthy only if its checks have examined every part', () => {
      assert.match(summaryOf(['cart', 'till', 'mailer']), /^Installed and healthy after 1\.3 s\.$/m)
      assert.match(summaryOf(['cart']), /^Installed after 1\.3 s\. Health checked: cart \(1 of 3 parts\)\.$/m)
      assert.match(summaryOf(['cart'], 1), /^Installed and healthy after/m)
      assert.match(summaryOf([]), /^Installed after 1\.3 s\. No health check ran\.$/m)
    })

    it('does not call the installed version healthy if one of its checks had nothing to examine', () => {
      const states = ['loading_plan', 'healthchecking', 'succeeded'].map(state => ({
        state,
        at: reportOf().started_at,
      }))
      const headlineOf = (checked?: string[]): string =>
        buildDeploySummary({
          report: reportOf({
            changed: false,
            states,
            steps: checked === undefined ? [] : [{ ...step, id: 'ok', action: 'healthcheck', checked }],
          }),
          plannedSteps: [],
        }).split('\n')[0] as string
      const unchecked = '### ⚠️ greeter 2.0.0 on host-1 is installed and intact; no health check ran'
      assert.equal(headlineOf(), unchecked)
      assert.equal(headlineOf([]), unchecked)
      assert.equal(headlineOf(['greeter']), '### 🩺 greeter 2.0.0 on host-1 is healthy; nothing was changed')
    })
  })

  describe('of the next step', () => {
    const entry = { duration_ms: 1, error: null }
    const restored = { restored: true, problems: [], verified: true, healthy: null }
    const db = { ...entry, id: 'db', action: 'provision', status: 'done' as const }
    const installing = [{ state: 'installing', at: reportOf().started_at }]
    const summaryOf = (code: ErrorCode, facts: Parameters<typeof reportOf>[0]): string => {
      const error = { code, message: 'it ended', step: null }
      const summary = buildDeploySummary({
        report: reportOf({ outcome: 'rolled_back', rollback: restored, error, ...facts }),
        plannedSteps: [],
      })
      return summary
    }
    const nextOf = (...run: Parameters<typeof summaryOf>): string =>
      /\*\*Next:\*\* (.*?)\\?$/m.exec(summaryOf(...run))?.[1] ?? ''

    it('asks for no repair only if nothing is left to repair', () => {
      assert.equal(nextOf('cancelled', {}), 'Nothing to repair. Run again when you want to.')
      assert.equal(
        nextOf('cancelled', { rollback: { ...restored, healthy: false } }),
        'Repair host-1 first: no healthy version is running there. Run again when you want to.',
      )
      assert.equal(
        nextOf('cancelled', { rollback: { ...restored, problems: ['it hangs'] } }),
        'Check the problems listed below. Run again when you want to.',
      )
      assert.equal(nextOf('cancelled', { steps: [db] }), 'Check what <code>db</code> did. Run again when you want to.')
      assert.doesNotMatch(nextOf('interrupted', { steps: [{ ...db, status: 'failed' }] }), /Nothing to repair/)
    })

    it('promises no further rollback if only the restored files are damaged', () => {
      const damaged = { ...restored, verified: false, problems: ['plugins/greeter/a.py is not as it was'] }
      const next = nextOf('step_failed', { outcome: 'inconsistent', rollback: damaged })
      assert.match(next, /The host is inconsistent.*: install the old version again\.$/)
      const unfinished = { ...damaged, restored: false, verified: null }
      assert.doesNotMatch(nextOf('step_failed', { outcome: 'inconsistent', rollback: unfinished }), /old version again/)
    })

    it('names no restored version if none was installed before', () => {
      const unstopped = { ...restored, problems: ['the unit runs'], healthy: false }
      const summary = summaryOf('unhealthy', { rollback: unstopped, previous_version: null })
      assert.match(summary, /but a service on host-1 is not as it was before: repair that service\. the unit runs\./)
    })

    it('asks to check a provision step that may have run when the run was killed', () => {
      const summary = summaryOf('interrupted', { states: installing })
      assert.match(summary, /^> The run was killed while it installed.*<code>provision<\/code> step.*may have run/m)
      assert.match(summary, /If the plan has a <code>provision<\/code> step, check whether it ran\. Find out/)
      for (const known of [
        { states: [] },
        { states: installing, steps: [{ ...entry, id: 'tell', action: 'notify', status: 'not_run' as const }] },
      ])
        assert.match(nextOf('interrupted', known), /^Nothing to repair\. Find out/)
    })
  })

  it('says whether a signature is valid only if that is known', () => {
    const at = reportOf().started_at
    const signatureIn = (known: Partial<LocalReport>, code: ErrorCode, ...entered: string[]): string | undefined => {
      const states = entered.map(state => ({ state, at }))
      const error = { code, message: 'it ended', step: null }
      const report = reportOf({ ...known, outcome: 'failed', changed: false, states, error })
      return /signature ([a-z ]+)\)/.exec(buildDeploySummary({ report, plannedSteps: [] }))?.[1]
    }
    const signatureOf = (code: ErrorCode, ...entered: string[]) => signatureIn({}, code, ...entered)
    const checked = ['verifying_signature', 'failed']
    for (const code of ['signature_mismatch', 'missing_signature', 'invalid_signature_format'] as const)
      assert.equal(signatureOf(code, ...checked), 'not valid', code)
    for (const code of ['digest_mismatch', 'version_reused', 'version_mismatch', 'downgrade_refused'] as const)
      assert.equal(signatureOf(code, ...checked), 'valid', code)
    assert.equal(signatureOf('locked', ...checked), 'valid')
    assert.equal(signatureOf('locked', 'fetching', 'failed'), 'not checked')
    assert.equal(signatureOf('cancelled', ...checked), 'not checked')
    assert.equal(signatureIn({ signer_public_key: 'key' }, 'cancelled', ...checked), 'valid')
    for (const code of ['cancelled', 'place_taken'] as const)
      assert.equal(signatureIn({ signature_valid: true }, code, ...checked), 'valid')
    assert.equal(signatureIn({ signer_public_key: 'key' }, 'signature_mismatch', ...checked), 'not valid')
    assert.equal(signatureOf('digest_mismatch', 'fetching', 'failed'), 'not checked')
    assert.equal(signatureOf('invalid_archive', 'verifying_signature', 'extracting', 'failed'), 'valid')
  })

  it('does not name the versions of a host that another deployment is changing', () => {
    const error = { code: 'locked' as const, message: 'Another deployment has locked this host.', step: null }
    const summary = buildDeploySummary({
      report: reportOf({ outcome: 'failed', changed: false, running_version: '1.0.0', error }),
      plannedSteps: [],
    })
    assert.match(
      summary,
      /^### ❌ greeter 2\.0\.0 gave way to another deployment on host-1; this run changed nothing$/m,
    )
    assert.match(
      summary,
      /^\*\*Now:\*\* not known; another deployment on this host is in progress or was interrupted\.$/m,
    )
  })

  const endings = {
    no_published_version: 'greeter (latest) has no known version and was not installed on host-1; 1.0.0 is still',
    not_found: 'greeter (latest) was not found on the hub and was not installed on host-1; 1.0.0 is still installed',
    not_installed: 'greeter (latest) was not found intact on host-1; 1.0.0 is still installed',
    network: 'greeter (latest) could not be fetched on host-1; 1.0.0 is still installed',
    invalid_plan: 'greeter (latest) was refused on host-1; 1.0.0 is still installed',
  } as const
  for (const [code, sentence] of Object.entries(endings))
    it(`says in the headline what went wrong: ${code}`, () => {
      const error = { code: code as ErrorCode, message: 'it ended', step: null }
      const facts = { outcome: 'failed', changed: false, running_version: '1.0.0', error } as const
      const report = reportOf({ ...facts, version: null, requested_version: 'latest' })
      const [headline = ''] = buildDeploySummary({ report, plannedSteps: [] }).split('\n')
      assert.ok(headline.startsWith(`### ❌ ${sentence}`), headline)
    })

  it('calls a run cancelled even if it has restarted a service', () => {
    const error = { code: 'cancelled' as const, message: 'it ended', step: null }
    const steps = [{ duration_ms: 1, error: null, id: 'up', action: 'restart', status: 'done' as const }]
    const headlineOf = (facts: object): string | undefined => {
      const report = reportOf({ outcome: 'failed', changed: false, steps, error, ...facts })
      return buildDeploySummary({ report, plannedSteps: [] }).split('\n')[0]
    }
    assert.equal(headlineOf({}), '### ❌ greeter 2.0.0 was cancelled on host-1; no file was changed')
    assert.equal(
      headlineOf({ rollback_of: '3.0.0' }),
      '### ❌ The rollback of greeter was cancelled on host-1; no file was changed',
    )
    assert.equal(
      headlineOf({ rollback_of: '3.0.0', slug: null, id: null }),
      '### ❌ This rollback was cancelled on host-1; no file was changed',
    )
  })

  it('calls a host empty only if the run has examined it', () => {
    const nowOf = (code: ErrorCode, state: string, previous_version: string | null = null): string | undefined => {
      const error = { code, message: 'it ended', step: null }
      const states = [{ state, at: reportOf().started_at }]
      const facts = { outcome: 'failed', changed: false, running_version: null, previous_version } as const
      const summary = buildDeploySummary({ report: reportOf({ ...facts, states, error }), plannedSteps: [] })
      return /\*\*Now:\*\* (.*)/.exec(summary)?.[1]
    }
    assert.equal(nowOf('network', 'fetching'), 'nothing is installed, as before.')
    assert.equal(nowOf('unsafe_host', 'pending'), 'not examined; nothing was changed.')
    assert.equal(nowOf('invalid_plan', 'pending'), 'as before: nothing was changed.')
    assert.equal(nowOf('network', 'fetching', '1.0.0'), 'as before: nothing was changed.')
  })

  describe('of a directory that this action had not installed', () => {
    const headlineOf = (facts: Parameters<typeof reportOf>[0]): string =>
      buildDeploySummary({ report: reportOf({ unrecorded: true, previous_version: null, ...facts }), plannedSteps: [] })

    it('says that the directory existed', () => {
      assert.match(
        headlineOf({}),
        /^### ✅ First install of greeter 2\.0\.0 on host-1; it replaced files that this action had not installed$/m,
      )
    })

    it('says that the directory is back after a rollback', () => {
      const rollback = { restored: true, problems: [], verified: null, healthy: null }
      const error = { code: 'unhealthy' as const, message: 'it ended', step: null }
      const summary = headlineOf({ outcome: 'rolled_back', rollback, error, running_version: null })
      assert.match(summary, /^### .* was rolled back on host-1; the files that were there before are back$/m)
      assert.match(summary, /^\*\*Now:\*\* the files that were there before are back\.$/m)
    })
  })

  it('says what changed if the version was already installed', () => {
    const step = { duration_ms: 1, error: null, id: 'files', action: 'install_plugin' }
    const env = { ...step, id: 'env', action: 'write_env', status: 'done' as const }
    const sentenceOf = (facts: Parameters<typeof reportOf>[0]): string =>
      buildDeploySummary({ report: reportOf({ previous_version: '2.0.0', ...facts }), plannedSteps: [] })
    assert.match(
      sentenceOf({ steps: [{ ...step, status: 'unchanged' }, env] }),
      /greeter 2\.0\.0 was already on host-1; its settings were written\n/,
    )
    assert.match(
      sentenceOf({ steps: [{ ...step, status: 'done' }, env], previous_sha256: 'ab'.repeat(32) }),
      /was already on host-1, and was installed again\n/,
    )
    assert.match(
      sentenceOf({ steps: [{ ...step, status: 'done' }], previous_sha256: 'cd'.repeat(32) }),
      /was already on host-1, and was installed again with different bytes \(sha256 cdcd\S+ → abab\S+\)\n/,
    )
  })
})
