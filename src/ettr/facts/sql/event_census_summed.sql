-- One row is a kind of events on one UTC day, from what a store keeps of its parts.
SELECT source, "check", code, severity, day, CAST(sum(events) AS BIGINT) AS events,
       min(first_us) AS first_us, max(last_us) AS last_us,
       min(first_end_us) AS first_end_us, max(last_end_us) AS last_end_us
FROM event_census_parts GROUP BY source, "check", code, severity, day
