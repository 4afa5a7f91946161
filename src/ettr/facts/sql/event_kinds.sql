-- One row is a kind of events on any day, source apart. events: how many; none of them need name a node.
-- keep: no
SELECT "check", code, severity, CAST(sum(events) AS BIGINT) AS events
FROM event_census GROUP BY "check", code, severity
