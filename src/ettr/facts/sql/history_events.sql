-- One row is an event near the ends of the asked job, on its nodes or about it.
-- $look_back_us before its first end, for an episode may have begun days ago, until $look_on_us after its
-- last.
WITH reach AS (
  SELECT min(end_us) - $look_back_us AS from_us, max(end_us) + $look_on_us AS to_us FROM history_attempts),
ids AS (
  SELECT job_id FROM history_attempts UNION SELECT job_id_raw FROM history_attempts WHERE job_id_raw <> '')
SELECT e.*
FROM events e CROSS JOIN reach r
WHERE e.time_us >= r.from_us AND e.time_us <= r.to_us
  AND e.cluster IN (SELECT cluster FROM history_attempts)
  AND (e.node IN (SELECT node FROM history_held WHERE node IS NOT NULL)
       OR e.job_id IN (SELECT job_id FROM ids))
