/**
 * The table `fleet` has one row for each plugin or service on each host. A row has the running version, and says
 * whether it needs attention. The whole table is derived from the reports. The table exists so that the cost of a page
 * of the fleet does not depend on the number of reports.
 */
export const FLEET_SCHEMA = `
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
