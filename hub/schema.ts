/** The columns that identify the subject of a report: one plugin or service on one host of one owner. */
export const HOST = ['kind', 'slug', 'deployer_id', 'host_id'] as const

/**
 * SQL: the time at which a reported deployment was completed, by the host's own clock, because a report that arrives
 * late must not hide a newer one. The time is never later than the report's arrival at this hub: a clock that is years
 * ahead must not hide later reports.
 */
const REPORT_COMPLETED = 'min(julianday(completed_at), julianday(created_at))'

/**
 * SQL: a column of the newest report, or of the newest success, from the host in a row of `table`. The newest report is
 * about the deployment that was completed last.
 */
export function newest(column: string, table: string, { isSuccess = false } = {}): string {
  const isSameHost = HOST.map(name => `newest.${name} = ${table}.${name}`).join(' AND ')
  // Without the name of the index, the query planner would walk through all failures since the last success.
  const [index, condition] = isSuccess
    ? ['INDEXED BY successes_by_completion', "newest.status = 'success'"]
    : ['', 'TRUE']
  return `SELECT ${column} FROM reports AS newest ${index} WHERE ${isSameHost} AND ${condition}
            ORDER BY ${REPORT_COMPLETED} DESC, newest.seq DESC LIMIT 1`
}

/**
 * The table `fleet` has one row for each plugin or service on each host. A row has the running version, and says
 * whether it needs attention. The whole table is derived from the reports. The table exists so that the cost of a page
 * of the fleet does not depend on the number of reports.
 */
const FLEET_SCHEMA = `
  CREATE TABLE IF NOT EXISTS fleet (
    kind TEXT NOT NULL,
    slug TEXT NOT NULL,
    deployer_id TEXT NOT NULL,
    host_id TEXT NOT NULL,
    host_order TEXT NOT NULL,
    words TEXT NOT NULL,
    needs_attention INTEGER NOT NULL,
    newest_seq INTEGER NOT NULL,
    success_seq INTEGER,
    running_version TEXT,
    PRIMARY KEY (deployer_id, host_id, kind, slug)
  ) STRICT;
  CREATE INDEX IF NOT EXISTS fleet_in_order
    ON fleet (needs_attention DESC, host_order, host_id, kind, slug, deployer_id);
  CREATE INDEX IF NOT EXISTS fleet_by_version ON fleet (kind, slug, running_version);
`

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
    ON reports (kind, slug, deployer_id, host_id, ${REPORT_COMPLETED}, seq);
  CREATE INDEX IF NOT EXISTS successes_by_completion
    ON reports (kind, slug, deployer_id, host_id, ${REPORT_COMPLETED}, seq) WHERE status = 'success';
  CREATE TRIGGER IF NOT EXISTS reports_never_change BEFORE UPDATE ON reports
    BEGIN SELECT RAISE(ABORT, 'the report journal is append-only'); END;
  ${REPORTS_NEVER_GO}
  ${FLEET_SCHEMA}
`

/**
 * SQL: the time at which a reported deployment was completed, by the host's own clock, because a report that arrives
 * late must not hide a newer one. The time is never later than the report's arrival at this hub: a clock that is years
 * ahead must not hide later reports.
 */
const PROJECT_REPORT_COMPLETED = 'min(julianday(completed_at), julianday(reported_at))'

/** SQL: the order of reports. The indexes are in the reverse order. */
export const NEWEST_PROJECT_REPORT_FIRST = `${PROJECT_REPORT_COMPLETED} DESC, reported_at DESC, rowid DESC`

/**
 * Created projects, sealed versions with their encrypted DEKs, keys and tokens of projects, and reported deployments.
 */
export const PROJECT_SCHEMA = `
  CREATE TABLE IF NOT EXISTS projects (
    project_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    created_at TEXT NOT NULL
  ) STRICT;
  CREATE TABLE IF NOT EXISTS project_versions (
    project_id TEXT NOT NULL,
    version TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    size INTEGER NOT NULL,
    signature TEXT NOT NULL,
    signer_public_key TEXT NOT NULL,
    encrypted_dek BLOB NOT NULL,
    published_at TEXT NOT NULL,
    revoked_at TEXT,
    PRIMARY KEY (project_id, version),
    UNIQUE (project_id, signature)
  ) STRICT;
  CREATE TABLE IF NOT EXISTS project_keys (
    id TEXT PRIMARY KEY,
    purpose TEXT NOT NULL,
    project_id TEXT NOT NULL,
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    created_at TEXT NOT NULL,
    last_used_at TEXT,
    revoked_at TEXT
  ) STRICT;
  CREATE TABLE IF NOT EXISTS access_tokens (
    hash TEXT PRIMARY KEY,
    devkey_id TEXT NOT NULL REFERENCES project_keys (id),
    expires_at_ms INTEGER NOT NULL
  ) STRICT;
  CREATE TABLE IF NOT EXISTS download_tickets (
    hash TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
    version TEXT NOT NULL,
    devkey_id TEXT NOT NULL REFERENCES project_keys (id),
    expires_at_ms INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX IF NOT EXISTS access_tokens_by_expiry ON access_tokens (expires_at_ms);
  CREATE INDEX IF NOT EXISTS download_tickets_by_expiry ON download_tickets (expires_at_ms);
  CREATE TABLE IF NOT EXISTS project_reports (
    project_id TEXT NOT NULL,
    deployment_id TEXT NOT NULL,
    version TEXT NOT NULL,
    status TEXT NOT NULL,
    plugins TEXT NOT NULL,
    started_at TEXT NOT NULL,
    completed_at TEXT NOT NULL,
    reported_at TEXT NOT NULL,
    PRIMARY KEY (project_id, deployment_id)
  ) STRICT;
  DROP INDEX IF EXISTS project_reports_by_time;
  DROP INDEX IF EXISTS project_reports_of_project;
  DROP INDEX IF EXISTS project_reports_of_success;
  CREATE INDEX IF NOT EXISTS project_reports_by_completion ON project_reports (${PROJECT_REPORT_COMPLETED}, reported_at);
  CREATE INDEX IF NOT EXISTS project_reports_of_project_by_completion
    ON project_reports (project_id, ${PROJECT_REPORT_COMPLETED}, reported_at);
  CREATE INDEX IF NOT EXISTS project_successes_by_completion
    ON project_reports (project_id, ${PROJECT_REPORT_COMPLETED}, reported_at) WHERE status = 'success';
`
