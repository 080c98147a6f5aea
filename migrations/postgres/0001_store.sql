-- The store: what was added through the API, and the filters it was added to.

-- One row. It tells this store from every other, and which process holds it.
CREATE TABLE bloomgate.store (
    only_row     boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    -- Watermarks and snapshots carry it, so that those of another store have no effect here.
    identity     uuid    NOT NULL,
    -- Drawn at random by every process that takes the store. A write compares it in its own
    -- statement, so that a process that has lost the store without noticing writes nothing. No
    -- counter: after a failover that lost the last step two processes would count to the same.
    holder_epoch bigint  NOT NULL
);

INSERT INTO bloomgate.store (identity, holder_epoch) VALUES (gen_random_uuid(), 0);

CREATE TABLE bloomgate.filter (
    -- Rows point to the id and not to the name: a name that is deleted and declared again gets a
    -- new id, and nothing of the old filter can reach the new one.
    id                  uuid             PRIMARY KEY,
    name                text             NOT NULL UNIQUE,
    profile             text             NOT NULL CHECK (profile IN ('jti', 'email', 'text')),
    profile_version     integer          NOT NULL CHECK (profile_version >= 0),
    gmail_dots          boolean          NOT NULL,
    googlemail          boolean          NOT NULL,
    plus_tags           boolean          NOT NULL,
    capacity            bigint           NOT NULL CHECK (capacity > 0),
    false_positive_rate double precision NOT NULL
        CHECK (false_positive_rate > 0 AND false_positive_rate < 1),
    -- The names of the sources that feed it: who does not know them all cannot answer for it.
    sources             text[]           NOT NULL,
    declared_by         text             NOT NULL CHECK (declared_by IN ('config', 'api')),
    -- The provider rules are the email profile's alone.
    CHECK (profile = 'email' OR NOT (gmail_dots OR googlemail OR plus_tags))
);

-- Filters that are gone and may have left items behind, which go in small parts.
CREATE TABLE bloomgate.deleted_filter (
    id uuid PRIMARY KEY
);

CREATE TABLE bloomgate.item (
    -- No foreign key: its check costs a look-up for every row. The adding statement locks the
    -- filter's row instead, once a call.
    filter_id        uuid        NOT NULL,
    -- bytea, because a text column refuses what the database's encoding does not know.
    item             bytea       NOT NULL,
    -- SHA-256 of item. A btree entry ends at 2,704 bytes, an item does not. The whole digest: whoever
    -- finds two items with one truncated digest makes the second one vanish.
    item_digest      bytea       NOT NULL CHECK (octet_length(item_digest) = 32),
    -- SHA-256 of the canonical bytes under the profile of this version. Not unique: another version
    -- or other options may split again what this one joins.
    canonical_digest bytea       NOT NULL CHECK (octet_length(canonical_digest) = 32),
    profile_version  integer     NOT NULL,
    -- Null means never.
    expires_at       timestamptz,
    -- The transaction that last added the item, stamped anew by every add: whoever follows by
    -- transaction id and has forgotten an expired item hears of it again.
    xid              xid8        NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (filter_id, item_digest)
);

CREATE INDEX item_by_canonical_digest ON bloomgate.item (filter_id, canonical_digest);

-- For those who follow: the rows written since a snapshot.
CREATE INDEX item_by_xid ON bloomgate.item (xid);
