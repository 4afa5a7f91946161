-- One row is a ticket about a node, or a serial number that it reports; time_end_us: null where open.
-- keep: no
SELECT cluster, node, "check", code, entity, time_us, time_end_us
FROM events WHERE "check" IN ('ticket', 'serial') AND node IS NOT NULL
