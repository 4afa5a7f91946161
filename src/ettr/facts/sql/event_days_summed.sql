-- One row is a node on a UTC day with events of it, from what a store keeps of its parts.
SELECT cluster, node, day, CAST(sum(errors) AS BIGINT) AS errors
FROM event_days_parts GROUP BY cluster, node, day
