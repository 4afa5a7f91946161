-- One row is a kind of events on one UTC day, counted in the events; columns as in event_census.
SELECT source, "check", code, severity, CAST(floor(time_us / 86400000000.0) AS BIGINT) AS day,
       count(*) AS events, min(time_us) AS first_us, max(time_us) AS last_us,
       min(time_end_us) AS first_end_us, max(time_end_us) AS last_end_us
FROM events
GROUP BY source, "check", code, severity, CAST(floor(time_us / 86400000000.0) AS BIGINT)
