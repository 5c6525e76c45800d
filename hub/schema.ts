/** The columns that identify the subject of a report: one plugin or service on one host of one owner. */
export const HOST = ['kind', 'slug', 'deployer_id', 'host_id'] as const

/**
 * SQL: a column of the newest report, or of the newest success, from the host in a row of `table`. The newest report is
 * the one that arrived last: a host reports its runs in order, and its clock may be wrong.
 */
export function newest(column: string, table: string, { isSuccess = false } = {}): string {
  const isSameHost = HOST.map(name => `newest.${name} = ${table}.${name}`).join(' AND ')
  // Without the name of the index, the query planner would walk through all failures since the last success.
  const [index, condition] = isSuccess ? ['INDEXED BY successes_by_arrival', "newest.status = 'success'"] : ['', 'TRUE']
  return `SELECT ${column} FROM reports AS newest ${index} WHERE ${isSameHost} AND ${condition}
            ORDER BY newest.seq DESC LIMIT 1`
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
  CREATE TABLE IF NOT EXISTS private_listings (
    kind TEXT NOT NULL,
    slug TEXT NOT NULL,
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
  DROP INDEX IF EXISTS reports_by_completion;
  DROP INDEX IF EXISTS successes_by_completion;
  CREATE INDEX IF NOT EXISTS reports_by_arrival ON reports (${HOST.join(', ')}, seq);
  CREATE INDEX IF NOT EXISTS successes_by_arrival ON reports (${HOST.join(', ')}, seq) WHERE status = 'success';
  CREATE TRIGGER IF NOT EXISTS reports_never_change BEFORE UPDATE ON reports
    BEGIN SELECT RAISE(ABORT, 'the report journal is append-only'); END;
  ${REPORTS_NEVER_GO}
  ${FLEET_SCHEMA}
`

/** SQL: the order of reports: the one that arrived last is the newest, because a host's clock may be wrong. */
export const NEWEST_PROJECT_REPORT_FIRST = 'rowid DESC'

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
  DROP INDEX IF EXISTS project_reports_by_completion;
  DROP INDEX IF EXISTS project_reports_of_project_by_completion;
  DROP INDEX IF EXISTS project_successes_by_completion;
  CREATE INDEX IF NOT EXISTS project_reports_by_arrival ON project_reports (project_id);
  CREATE INDEX IF NOT EXISTS project_successes_by_arrival ON project_reports (project_id) WHERE status = 'success';
`
