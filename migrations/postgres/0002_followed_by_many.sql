-- Many processes share a store and follow it: nobody holds it any more.

ALTER TABLE bloomgate.store
    DROP COLUMN holder_epoch,
    -- Rises with every declaration and deletion: who follows looks at the filters anew when it has.
    ADD COLUMN declarations bigint NOT NULL DEFAULT 0;

ALTER TABLE bloomgate.filter
    -- SHA-256 of each source's query, in the order of the names: who asks another query under the
    -- same name cannot answer for the rows of this one.
    ADD COLUMN source_digests  text[] NOT NULL DEFAULT '{}',
    -- Under which profiles, versions and options rows may have got their canonical digest. Of rows
    -- from before this column nobody knows.
    ADD COLUMN canonical_forms text[] NOT NULL DEFAULT '{unknown}',
    -- Rows that were removed, or deleted past their expiry: what generations still hold of them is
    -- ballast.
    ADD COLUMN forgotten       bigint NOT NULL DEFAULT 0;

-- One random row. Unlogged: it outlives a clean restart, and is gone after a crash, a promotion and
-- a restore of files, which are the events after which transaction ids may come again.
CREATE UNLOGGED TABLE bloomgate.marker (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    nonce    uuid    NOT NULL DEFAULT gen_random_uuid()
);

-- The processes that share the store. Logged: a process whose report a crash has taken away may still
-- answer from what it followed before, and whoever waits for all has to wait for it.
CREATE TABLE bloomgate.replica (
    id               uuid   PRIMARY KEY,
    max_staleness_ms bigint NOT NULL
);

-- How far each of them has followed. Unlogged: they tell it again with every poll.
CREATE UNLOGGED TABLE bloomgate.report (
    replica_id uuid   PRIMARY KEY,
    -- Counted by the process: the same number means the same report, also after a crash.
    reports    bigint NOT NULL,
    -- Null while it follows nothing.
    cursor     bytea
) WITH (fillfactor = 50);

-- For those who delete what has expired.
CREATE INDEX item_by_expiry ON bloomgate.item (expires_at) WHERE expires_at IS NOT NULL;
