-- One row is a kind of events of a node, counted in the events; columns as in event_node_kinds.
SELECT cluster, node, "check", code, severity, count(*) AS events,
       min(time_us) AS first_us, max(time_us) AS last_us
FROM events WHERE node IS NOT NULL GROUP BY cluster, node, "check", code, severity
