-- One row is a preempted attempt of a job that may have made room for a restart (restarts), and a line of
-- the controller's log on that job at most $preemption_line_us from its end.
-- elapsed_s, n_gpus: null where the log does not say. related_job_id, time_us: of the line, null
-- without any.
-- keep: no
WITH jobs AS (
  SELECT l.cluster, l.job_id FROM preemption_lines l
  JOIN restarts r ON l.cluster = r.cluster AND l.related_job_id = r.job_id
  UNION
  SELECT e.cluster, e.job_id FROM all_endings e
  JOIN preempted_before p ON e.attempt_id = p.attempt_id)
SELECT e.attempt_id, e.cluster, e.job_id, e.end_us, e.elapsed_s, e.n_gpus, l.related_job_id, l.time_us
FROM all_endings e
JOIN jobs j ON e.cluster = j.cluster AND e.job_id = j.job_id
LEFT JOIN preemption_lines l
  ON e.cluster = l.cluster AND e.job_id = l.job_id AND abs(l.time_us - e.end_us) <= $preemption_line_us
WHERE e.state = 'PREEMPTED'
ORDER BY l.time_us, l.related_job_id, e.attempt_id
