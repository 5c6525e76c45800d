import { FLEET_SCHEMA } from './fleet-schema.ts'
import { COMPLETED } from './newest-report.ts'

/** Only `pruneReports` bypasses this trigger. */
export const REPORTS_NEVER_GO = `
  CREATE TRIGGER IF NOT EXISTS reports_never_go BEFORE DELETE ON reports
    BEGIN SELECT RAISE(ABORT, 'the report journal is append-only'); END;
`

/** Plugins and services, their versions, and the journal of reports. Triggers keep the journal append-only. */
export const MARKETPLACE_SCHEMA = `
  CREATE TABLE IF NOT EXISTS listings (
    kind TEXT NOT NULL,
    slug TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (kind, slug)
  ) STRICT;
  CREATE TABLE IF NOT EXISTS versions (
    kind TEXT NOT NULL,
    slug TEXT NOT NULL,
    version TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    size INTEGER NOT NULL,
    signature TEXT NOT NULL,
    repo TEXT,
    published_at TEXT NOT NULL,
    held_at TEXT,
    yanked_at TEXT,
    PRIMARY KEY (kind, slug, version),
    FOREIGN KEY (kind, slug) REFERENCES listings (kind, slug)
  ) STRICT;
  CREATE TABLE IF NOT EXISTS reports (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    deployer_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    slug TEXT NOT NULL,
    version TEXT NOT NULL,
    host_id TEXT NOT NULL,
    status TEXT NOT NULL,
    repo TEXT,
    error_message TEXT,
    started_at TEXT NOT NULL,
    completed_at TEXT NOT NULL,
    created_at TEXT NOT NULL
  ) STRICT;
  DROP INDEX IF EXISTS reports_by_host;
  DROP INDEX IF EXISTS reports_by_host_and_time;
  DROP INDEX IF EXISTS reports_of_success;
  CREATE INDEX IF NOT EXISTS reports_by_completion
    ON reports (kind, slug, deployer_id, host_id, ${COMPLETED}, seq);
  CREATE INDEX IF NOT EXISTS successes_by_completion
    ON reports (kind, slug, deployer_id, host_id, ${COMPLETED}, seq) WHERE status = 'success';
  CREATE TRIGGER IF NOT EXISTS reports_never_change BEFORE UPDATE ON reports
    BEGIN SELECT RAISE(ABORT, 'the report journal is append-only'); END;
  ${REPORTS_NEVER_GO}
  ${FLEET_SCHEMA}
`
