-- An item may be in the set for a part of its tokens: those that were issued until a time.

-- Microseconds since 1970-01-01 UTC. Null, as in every row from before, means all of its tokens,
-- whenever they were issued.
ALTER TABLE item ADD COLUMN revoke_issued_until INTEGER;
