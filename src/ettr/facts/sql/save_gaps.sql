-- One row is a save of a run right after another one, by rank 0: no start, restore, restart or end lies
-- between. end_us: when it was over; gap_us: since the one before was.
-- keep: no
WITH marks AS (
  SELECT event, time_us,
         lag(event) OVER (PARTITION BY cluster, run_id, job_id ORDER BY time_us, event) AS event_before,
         lag(time_us) OVER (PARTITION BY cluster, run_id, job_id ORDER BY time_us, event) AS before_us
  FROM progress
  WHERE event IN ('save', 'start', 'restore', 'restart', 'end') AND coalesce(rank, 0) = 0)
SELECT time_us AS end_us, time_us - before_us AS gap_us
FROM marks WHERE event = 'save' AND event_before = 'save' AND time_us > before_us
