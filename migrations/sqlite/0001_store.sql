-- The store: what was added through the API, and the filters it was added to.

-- One row.
CREATE TABLE store (
    only_row    INTEGER PRIMARY KEY CHECK (only_row = 1),
    -- Watermarks and snapshots carry it, so that those of another store have no effect here.
    identity    BLOB    NOT NULL CHECK (length(identity) = 16),
    -- The number of the last commit that added rows. Kept here and not taken from the rows, for a
    -- number must not come again after the rows that bore it are deleted.
    last_commit INTEGER NOT NULL
) STRICT;

INSERT INTO store (only_row, identity, last_commit) VALUES (1, randomblob(16), 0);

CREATE TABLE filter (
    -- Rows point to the id and not to the name: a name that is deleted and declared again gets a
    -- new id, and nothing of the old filter can reach the new one.
    id                  BLOB    PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    name                TEXT    NOT NULL UNIQUE,
    profile             TEXT    NOT NULL CHECK (profile IN ('jti', 'email', 'text')),
    profile_version     INTEGER NOT NULL CHECK (profile_version >= 0),
    gmail_dots          INTEGER NOT NULL CHECK (gmail_dots IN (0, 1)),
    googlemail          INTEGER NOT NULL CHECK (googlemail IN (0, 1)),
    plus_tags           INTEGER NOT NULL CHECK (plus_tags IN (0, 1)),
    capacity            INTEGER NOT NULL CHECK (capacity > 0),
    false_positive_rate REAL    NOT NULL
        CHECK (false_positive_rate > 0 AND false_positive_rate < 1),
    -- The names of the sources that feed it, as a JSON array.
    sources             TEXT    NOT NULL CHECK (json_valid(sources)),
    declared_by         TEXT    NOT NULL CHECK (declared_by IN ('config', 'api')),
    -- The provider rules are the email profile's alone.
    CHECK (profile = 'email' OR gmail_dots + googlemail + plus_tags = 0)
) STRICT, WITHOUT ROWID;

-- Filters that are gone and may have left items behind, which go in small parts.
CREATE TABLE deleted_filter (
    id BLOB PRIMARY KEY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE item (
    filter_id        BLOB    NOT NULL,
    item             BLOB    NOT NULL,
    -- SHA-256 of item, whole: whoever finds two items with one truncated digest makes the second
    -- one vanish.
    item_digest      BLOB    NOT NULL CHECK (length(item_digest) = 32),
    -- SHA-256 of the canonical bytes under the profile of this version. Not unique: another version
    -- or other options may split again what this one joins.
    -- Not indexed while nobody asks by it: every add would touch as many pages again.
    canonical_digest BLOB    NOT NULL CHECK (length(canonical_digest) = 32),
    profile_version  INTEGER NOT NULL,
    -- Microseconds since 1970-01-01 UTC; null means never.
    expires_at       INTEGER,
    -- The commit that last added the item, stamped anew by every add.
    commit_number    INTEGER NOT NULL,
    PRIMARY KEY (filter_id, item_digest)
-- Without rowid a filter's rows lie together, and a load reads them in one sweep.
) STRICT, WITHOUT ROWID;

-- The rows written since a commit.
CREATE INDEX item_by_commit_number ON item (commit_number);
