-- One row is a kind of events of a node, from what a store keeps of its parts.
SELECT cluster, node, "check", code, severity, CAST(sum(events) AS BIGINT) AS events,
       min(first_us) AS first_us, max(last_us) AS last_us
FROM event_node_kinds_parts GROUP BY cluster, node, "check", code, severity
