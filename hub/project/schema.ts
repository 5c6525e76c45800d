import { COMPLETED } from './newest-report.ts'

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
  CREATE INDEX IF NOT EXISTS project_reports_by_completion ON project_reports (${COMPLETED}, reported_at);
  CREATE INDEX IF NOT EXISTS project_reports_of_project_by_completion
    ON project_reports (project_id, ${COMPLETED}, reported_at);
  CREATE INDEX IF NOT EXISTS project_successes_by_completion
    ON project_reports (project_id, ${COMPLETED}, reported_at) WHERE status = 'success';
`
