-- The starts of the server, each told by the first process that comes after it. Logged, unlike the marker:
-- a copy of the data folder that was made while the server was stopped has the marker and all, and is told
-- apart only by the starts that it does not know. One row a start.
CREATE TABLE bloomgate.server_start (
    started_at timestamptz PRIMARY KEY,
    -- The stretch of the timeline that began with it.
    segment    bigint NOT NULL UNIQUE
               DEFAULT pg_catalog.uuid_hash_extended(pg_catalog.gen_random_uuid(), 0)
);
