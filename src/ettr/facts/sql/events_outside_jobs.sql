-- One row: events before the first attempt began, and after the last one ended; 0 without attempts.
-- keep: no
SELECT count(CASE WHEN e.time_us < c.first_us THEN 1 END) AS before,
       count(CASE WHEN e.time_us > c.last_us THEN 1 END) AS after
FROM events e CROSS JOIN attempt_checks c
