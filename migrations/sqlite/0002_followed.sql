-- What following needs. The comments of the PostgreSQL migration of this number hold here too.

ALTER TABLE store ADD COLUMN declarations INTEGER NOT NULL DEFAULT 0;

ALTER TABLE filter ADD COLUMN source_digests TEXT NOT NULL DEFAULT '[]';
ALTER TABLE filter ADD COLUMN canonical_forms TEXT NOT NULL DEFAULT '["unknown"]';
ALTER TABLE filter ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;

-- Each time that a process has opened the store. A cursor names the one that it was taken in: where
-- the file was put back to an earlier state in between, commit numbers came again.
CREATE TABLE opening (
    -- AUTOINCREMENT, for plain rowids come again.
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Random.
    segment      INTEGER NOT NULL UNIQUE,
    -- The last commit before it.
    first_commit INTEGER NOT NULL
) STRICT;

-- For removal and confirmation, which ask by what is hashed.
CREATE INDEX item_by_canonical_digest ON item (filter_id, canonical_digest);

-- For the deletion of what has expired.
CREATE INDEX item_by_expiry ON item (expires_at) WHERE expires_at IS NOT NULL;
