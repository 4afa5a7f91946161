-- One row is a code of a GPU or an NVSwitch in the kernel log of a node: events, first_us, last_us.
-- keep: no
SELECT cluster, node, "check", code, CAST(sum(events) AS BIGINT) AS events,
       min(first_us) AS first_us, max(last_us) AS last_us
FROM event_node_kinds
WHERE "check" IN ('xid', 'sxid') AND code IS NOT NULL GROUP BY cluster, node, "check", code
