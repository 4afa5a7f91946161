-- One row is a program of which chosen attempts began: a job's name, those that differ in numbers alone
-- being one; '' without a name. "user": null where the log has none. n: how many began.
-- keep: no
WITH named AS (
  SELECT cluster, "user", regexp_replace(coalesce(name, ''), '[0-9]+', '#', 'g') AS program
  FROM chosen WHERE start_us IS NOT NULL)
SELECT cluster, "user", program, count(*) AS n FROM named GROUP BY cluster, "user", program
