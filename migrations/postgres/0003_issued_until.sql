-- An item may be in the set for a part of its tokens: those that were issued until a time.

ALTER TABLE bloomgate.item
    -- Null, as in every row from before, means all of its tokens, whenever they were issued.
    ADD COLUMN revoke_issued_until timestamptz,
    -- The transaction that wrote the time. The time holds only while it is the one that added the item
    -- last (xid): a process from before these columns, which may still be running, adds items for all of
    -- their tokens, stamps xid, and leaves both columns as they are.
    ADD COLUMN revoke_xid          xid8;
