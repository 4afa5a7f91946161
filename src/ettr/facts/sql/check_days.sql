-- One row is a check on a day on which it reported: its first and last event of that day, how many.
-- keep: no
SELECT "check", day, min(first_us) AS first_us, max(last_us) AS last_us, sum(events) AS events
FROM event_census GROUP BY "check", day
