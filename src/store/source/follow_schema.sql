-- What is changed in followed tables, kept until every replica has had time to read it. Unlogged, which saves
-- whoever writes the log of it: what empties this table, a crash above all, takes the marker below away as
-- well, and then every replica loads in full.
CREATE UNLOGGED TABLE IF NOT EXISTS bloomgate_follow.change (
    filter pg_catalog.text NOT NULL,
    source pg_catalog.text NOT NULL,
    item pg_catalog.text,
    expires_at pg_catalog.timestamptz,
    -- Of the whole transaction, subtransactions included: it is told apart by snapshots.
    xid pg_catalog.xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id()
);
CREATE INDEX IF NOT EXISTS change_xid ON bloomgate_follow.change (xid);

-- Gone after a crash, a promotion and a physical restore, when transaction ids may come again:
-- that is what UNLOGGED is for here. It also knows which database it was made in, for a dump
-- takes it along.
CREATE UNLOGGED TABLE IF NOT EXISTS bloomgate_follow.marker (
    is_there pg_catalog.bool PRIMARY KEY DEFAULT true CHECK (is_there),
    id pg_catalog.uuid NOT NULL,
    cluster pg_catalog.int8 NOT NULL,
    database pg_catalog.oid NOT NULL
);

-- The starts of the server. A copy of its files that was made while it was stopped has the marker and all,
-- and is told apart by the starts that it does not know. One row a start.
CREATE TABLE IF NOT EXISTS bloomgate_follow.server_start (
    started_at pg_catalog.timestamptz PRIMARY KEY,
    segment pg_catalog.int8 NOT NULL UNIQUE
        DEFAULT pg_catalog.uuid_hash_extended(pg_catalog.gen_random_uuid(), 0)
);

-- Below this transaction id changes may have been deleted.
CREATE TABLE IF NOT EXISTS bloomgate_follow.horizon (
    is_there pg_catalog.bool PRIMARY KEY DEFAULT true CHECK (is_there),
    xid pg_catalog.xid8 NOT NULL
);
INSERT INTO bloomgate_follow.horizon (xid) VALUES ('0') ON CONFLICT DO NOTHING;

-- Which transactions had ended by when: all below `oldest`.
CREATE TABLE IF NOT EXISTS bloomgate_follow.sample (
    taken_at pg_catalog.timestamptz NOT NULL,
    oldest pg_catalog.xid8 NOT NULL
);

-- Called by each new session that follows. A marker that is new ends every cursor there is, so that what was
-- known of older transactions no longer counts.
CREATE OR REPLACE FUNCTION bloomgate_follow.renew_marker() RETURNS pg_catalog.void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    INSERT INTO bloomgate_follow.server_start (started_at)
    SELECT pg_postmaster_start_time()
     WHERE NOT EXISTS (SELECT FROM bloomgate_follow.server_start
                        WHERE started_at = pg_postmaster_start_time())
        ON CONFLICT DO NOTHING;
    INSERT INTO bloomgate_follow.marker AS kept (id, cluster, database)
    SELECT gen_random_uuid(), control.system_identifier, own.oid
      FROM pg_control_system() AS control, pg_database AS own
     WHERE own.datname = current_database()
        ON CONFLICT (is_there) DO UPDATE
       SET (id, cluster, database) = (excluded.id, excluded.cluster, excluded.database)
     WHERE (kept.cluster, kept.database) <> (excluded.cluster, excluded.database);
    IF FOUND THEN
        DELETE FROM bloomgate_follow.sample;
        INSERT INTO bloomgate_follow.horizon AS kept (xid)
        VALUES (pg_snapshot_xmin(pg_current_snapshot()))
            ON CONFLICT (is_there) DO UPDATE SET xid = excluded.xid;
    END IF;
END
$function$;

-- Deletes changes that nobody within the retention needs, 5,000 at most, and tells how many. A
-- snapshot older than the retention sees the end of every transaction below its xmin, and so does
-- each that was taken since.
CREATE OR REPLACE FUNCTION bloomgate_follow.prune(retention pg_catalog.interval)
RETURNS pg_catalog.int8
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    kept_from timestamptz;
    reached xid8;
    pruned int8;
BEGIN
    -- One at a time; whoever comes second leaves it to the first.
    PERFORM FROM bloomgate_follow.horizon FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    IF NOT EXISTS (SELECT FROM bloomgate_follow.sample
                    WHERE taken_at BETWEEN clock_timestamp() - retention / 16
                                       AND clock_timestamp()) THEN
        INSERT INTO bloomgate_follow.sample
        VALUES (clock_timestamp(), pg_snapshot_xmin(pg_current_snapshot()));
    END IF;
    SELECT taken_at, oldest INTO kept_from, reached FROM bloomgate_follow.sample
     WHERE taken_at <= clock_timestamp() - retention ORDER BY taken_at DESC LIMIT 1;
    DELETE FROM bloomgate_follow.sample WHERE taken_at < kept_from;
    UPDATE bloomgate_follow.horizon SET xid = reached WHERE xid < reached;
    SELECT xid INTO reached FROM bloomgate_follow.horizon;
    -- Transactions that are still to come are another cluster's: a dump brought them.
    DELETE FROM bloomgate_follow.change WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM bloomgate_follow.change
         WHERE xid < reached OR xid >= pg_snapshot_xmax(pg_current_snapshot()) LIMIT 5000));
    GET DIAGNOSTICS pruned = ROW_COUNT;
    RETURN pruned;
END
$function$;

-- What may be called is granted below, and nothing to everyone.
REVOKE ALL ON FUNCTION bloomgate_follow.renew_marker() FROM PUBLIC;
REVOKE ALL ON FUNCTION bloomgate_follow.prune(pg_catalog.interval) FROM PUBLIC;
