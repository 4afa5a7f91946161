-- Preempted attempts, and for whom they made room.

-- One row is a line of the controller's log that names a preempted job and, as related_job_id, the job
-- that it made room for.
CREATE TABLE preemption_lines AS
SELECT cluster, job_id, related_job_id, time_us FROM events
WHERE "check" = 'slurmctld' AND code = 'PREEMPTED' AND job_id IS NOT NULL AND related_job_id IS NOT NULL;

-- One row is a preempted attempt that ended on a node at most $preempted_within_s seconds before a
-- restart (restarts) began there, and that restart; $clock_slack_s after it counts too.
CREATE TABLE preempted_before AS
WITH starts AS (
  SELECT DISTINCT a.cluster, a.node, a.attempt_id AS restart_id, a.start_us // 1000000 AS start_s
  FROM allocations a JOIN restarts r ON a.attempt_id = r.attempt_id),
-- what ended in time lies in the bucket of the start or the one before, by the slack in the one after
near AS (
  SELECT cluster, node, restart_id, start_s, start_s // $preempted_within_s - 1 AS bucket FROM starts
  UNION ALL
  SELECT cluster, node, restart_id, start_s, start_s // $preempted_within_s AS bucket FROM starts
  UNION ALL
  SELECT cluster, node, restart_id, start_s, start_s // $preempted_within_s + 1 AS bucket FROM starts),
ends AS (
  SELECT h.cluster, h.node, h.attempt_id, h.end_us // 1000000 AS end_s,
         h.end_us // 1000000 // $preempted_within_s AS bucket
  FROM interrupted_held h JOIN all_endings e ON h.attempt_id = e.attempt_id
  WHERE e.state = 'PREEMPTED' AND h.end_us IS NOT NULL)
SELECT DISTINCT e.attempt_id, n.restart_id
FROM ends e JOIN near n ON e.cluster = n.cluster AND e.node = n.node AND e.bucket = n.bucket
WHERE e.end_s <= n.start_s + $clock_slack_s AND n.start_s - e.end_s <= $preempted_within_s;

-- One row is a preempted attempt of a job that may have made room for a restart (restarts), and a line of
-- the controller's log on that job at most $preemption_line_us from its end.
-- elapsed_s, n_gpus: null where the log does not say. related_job_id, time_us: of the line, null
-- without any.
-- keep: no
CREATE TABLE preempted_near AS
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
ORDER BY l.time_us, l.related_job_id, e.attempt_id;

-- One row: attempts of the selected jobs that were preempted in the period, on any node, and lines of the
-- controller's log (preemption_lines) in it. named: all such lines; named_of_jobs: on such a job.
-- keep: no
CREATE TABLE preemption_counts AS
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
LEFT JOIN gone g ON l.cluster = g.cluster AND l.job_id = g.job_id;
