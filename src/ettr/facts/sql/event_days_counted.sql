-- One row is a node on a UTC day with events of it, counted in the events; columns as in event_days.
SELECT cluster, node, CAST(floor(time_us / 86400000000.0) AS BIGINT) AS day,
       count(CASE WHEN "check" <> 'slurmctld' THEN 1 END) AS errors
FROM events WHERE node IS NOT NULL
GROUP BY cluster, node, CAST(floor(time_us / 86400000000.0) AS BIGINT)
