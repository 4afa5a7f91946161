-- One row: attempts of the selected jobs that were preempted in the period, on any node, and lines of the
-- controller's log (preemption_lines) in it. named: all such lines; named_of_jobs: on such a job.
-- keep: no
WITH gone AS (
  SELECT e.cluster, e.job_id, count(*) AS n
  FROM all_endings e JOIN asked_ends a ON e.attempt_id = a.attempt_id
  WHERE e.state = 'PREEMPTED' GROUP BY e.cluster, e.job_id),
counted AS (SELECT coalesce(sum(n), 0) AS preempted FROM gone)
SELECT max(c.preempted) AS preempted, count(l.time_us) AS named, count(g.n) AS named_of_jobs
FROM counted c
LEFT JOIN preemption_lines l
  ON (CAST($since_us AS BIGINT) IS NULL OR l.time_us >= CAST($since_us AS BIGINT))
  AND (CAST($until_us AS BIGINT) IS NULL OR l.time_us < CAST($until_us AS BIGINT))
LEFT JOIN gone g ON l.cluster = g.cluster AND l.job_id = g.job_id
