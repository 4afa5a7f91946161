-- Progress of training, by job and cluster.

-- One row is a job that progress names without its cluster, where one cluster alone has a job of
-- that id.
CREATE TABLE progress_owners AS
SELECT job_id, min(cluster) AS cluster FROM attempts
WHERE job_id IN (SELECT job_id FROM progress WHERE cluster IS NULL AND job_id IS NOT NULL)
GROUP BY job_id HAVING min(cluster) = max(cluster);

-- One row is a line of progress of a job whose cluster is known: named, or the only one that has a
-- job of that id. Columns as the table progress.
-- keep: view
CREATE VIEW progress_owned AS
SELECT cluster, run_id, job_id, coalesce(rank, 0) AS rank, time_us, event, step, duration_s, detail,
       file_id, line
FROM progress WHERE job_id IS NOT NULL AND cluster IS NOT NULL
UNION ALL
SELECT o.cluster, p.run_id, p.job_id, coalesce(p.rank, 0) AS rank, p.time_us, p.event, p.step, p.duration_s, p.detail,
       p.file_id, p.line
FROM progress p JOIN progress_owners o ON p.job_id = o.job_id WHERE p.cluster IS NULL;

-- One row is a training run on one cluster as progress has it; cluster: null where not recorded.
-- last_us: when the last of its events was over.
-- keep: no
CREATE TABLE progress_runs AS
SELECT run_id, cluster, max(time_us) AS last_us FROM progress GROUP BY run_id, cluster;

-- One row is a job that ran and has progress: from when to when it was recorded (first_us, last_us,
-- file_id), and from when to when it ran (start_us, end_us, attempt_file_id; is_open: 1 where an
-- attempt has no end).
-- keep: no
CREATE TABLE progress_spans AS
WITH covered AS (
  SELECT cluster, job_id, min(time_us) AS first_us, max(time_us) AS last_us, min(file_id) AS file_id
  FROM progress_owned GROUP BY cluster, job_id),
ran AS (
  SELECT cluster, job_id, min(start_us) AS start_us, max(end_us) AS end_us,
         max(CASE WHEN end_us IS NULL THEN 1 ELSE 0 END) AS is_open, min(file_id) AS attempt_file_id
  FROM attempts WHERE start_us IS NOT NULL AND job_id IN (SELECT job_id FROM progress)
  GROUP BY cluster, job_id)
SELECT r.cluster, r.job_id, c.first_us, c.last_us, c.file_id, r.start_us, r.end_us, r.is_open,
       r.attempt_file_id
FROM ran r JOIN covered c ON r.cluster = c.cluster AND r.job_id = c.job_id;

-- One row is a line of progress of the selected runs, where no other log has jobs: a job without an
-- id goes by that of its run. Columns as progress_owned.
-- keep: view
CREATE VIEW progress_recorded AS
SELECT coalesce(p.cluster, 'unnamed') AS cluster, p.run_id, coalesce(p.job_id, p.run_id) AS job_id,
       coalesce(p.rank, 0) AS rank, p.time_us, p.event, p.step, p.duration_s, p.detail,
       p.file_id, p.line
FROM progress p
JOIN recorded_runs r
  ON p.run_id = r.run_id AND coalesce(p.cluster, 'unnamed') = coalesce(r.cluster, 'unnamed');

-- One row is a job of the selected runs of progress as one attempt, from its first event to its last;
-- columns as `chosen`. state: only an `end` shows that it completed.
CREATE TABLE run_attempts_recorded AS
WITH spans AS (
  SELECT cluster, job_id, min(run_id) AS run_id,
         CAST(floor(min(time_us // 1000000 - coalesce(duration_s, 0.0))) AS BIGINT) AS start_s,
         (max(time_us) + 999999) // 1000000 AS end_s,
         max(CASE WHEN event = 'end' THEN 1 ELSE 0 END) AS ended
  FROM progress_recorded GROUP BY cluster, job_id)
SELECT cluster, cluster || '/' || job_id AS attempt_id, job_id, CAST(NULL AS VARCHAR) AS "user",
       run_id AS name, CASE WHEN ended = 1 THEN 'COMPLETED' ELSE 'UNKNOWN' END AS state,
       CAST(NULL AS BIGINT) AS n_gpus, CAST(NULL AS BIGINT) AS n_nodes,
       start_s * 1000000 AS submit_us, CAST(NULL AS BIGINT) AS eligible_us,
       start_s * 1000000 AS start_us, end_s * 1000000 AS end_us,
       CAST(end_s - start_s AS DOUBLE) AS elapsed_s, CAST(NULL AS DOUBLE) AS suspended_s,
       CAST(NULL AS VARCHAR) AS work_dir, CAST(NULL AS DOUBLE) AS parts_gpu_s, '' AS file_id
FROM spans;

-- One row: how often the selected runs of progress began again: a later `start`, or a `restart` that
-- follows none. The lowest rank that reports of each job counts.
-- keep: no
CREATE TABLE recorded_restarts AS
WITH lowest AS (
  SELECT run_id, job_id, min(rank) AS rank FROM progress_recorded GROUP BY run_id, job_id),
begun AS (
  SELECT p.run_id, p.event,
         lag(p.event) OVER (PARTITION BY p.run_id ORDER BY p.time_us, p.file_id, p.line) AS prior
  FROM progress_recorded p
  JOIN lowest l ON p.run_id = l.run_id AND p.job_id = l.job_id AND p.rank = l.rank
  WHERE p.event IN ('start', 'restart', 'step'))
SELECT coalesce(sum(CASE WHEN event = 'start' AND prior IS NOT NULL THEN 1
                         WHEN event = 'restart' AND coalesce(prior, '') <> 'start' THEN 1
                         ELSE 0 END), 0) AS restarts
FROM begun;

-- One row is a job within which its training restarted, with the rank to believe: of those that report
-- most restarts the lowest.
CREATE TABLE restart_ranks AS
WITH by_rank AS (
  SELECT run_id, cluster, job_id, rank, count(*) AS n FROM progress_owned WHERE event = 'restart'
  GROUP BY run_id, cluster, job_id, rank),
most AS (
  SELECT run_id, cluster, job_id, max(n) AS n FROM by_rank GROUP BY run_id, cluster, job_id)
SELECT b.run_id, b.cluster, b.job_id, min(b.rank) AS rank
FROM by_rank b
JOIN most m ON b.run_id = m.run_id AND b.cluster = m.cluster AND b.job_id = m.job_id AND b.n = m.n
GROUP BY b.run_id, b.cluster, b.job_id;

-- One row is a line of progress from the rank of its job that is believed on restarts.
-- keep: no
CREATE TABLE restart_lines AS
SELECT p.cluster, p.job_id, p.time_us, p.event
FROM progress_owned p
JOIN restart_ranks r ON p.run_id = r.run_id AND p.cluster = r.cluster AND p.job_id = r.job_id
                    AND p.rank = r.rank
ORDER BY p.cluster, p.job_id, p.time_us, p.event;

-- One row is an attempt that began, of a job within which its training restarted; is_asked: it is of
-- the selection.
-- keep: no
CREATE TABLE restarted_attempts AS
WITH jobs AS (SELECT DISTINCT cluster, job_id FROM restart_ranks)
SELECT a.cluster, a.job_id, a.start_us, a.end_us, a.n_gpus, a.n_nodes,
       e.attempt_id IS NOT NULL AS is_asked
FROM attempts a
JOIN jobs j ON a.cluster = j.cluster AND a.job_id = j.job_id
LEFT JOIN exposure e ON a.attempt_id = e.attempt_id
WHERE a.start_us IS NOT NULL ORDER BY a.start_us;

-- One row is a number of GPUs and of nodes of chosen attempts that began, of jobs whose progress is
-- recorded; job_s: seconds run.
-- keep: no
CREATE TABLE recorded_shapes AS
WITH jobs AS (SELECT DISTINCT cluster, job_id FROM progress_owned)
SELECT e.n_gpus, e.n_nodes, sum(coalesce(e.elapsed_s, 0.0)) AS job_s
FROM attempts a
JOIN jobs p ON a.cluster = p.cluster AND a.job_id = p.job_id
JOIN exposure e ON a.attempt_id = e.attempt_id
WHERE e.start_us IS NOT NULL GROUP BY e.n_gpus, e.n_nodes;

-- One row is a save of a run right after another one, by rank 0: no start, restore, restart or end lies
-- between. end_us: when it was over; gap_us: since the one before was.
-- keep: no
CREATE TABLE save_gaps AS
WITH marks AS (
  SELECT event, time_us,
         lag(event) OVER (PARTITION BY cluster, run_id, job_id ORDER BY time_us, event) AS event_before,
         lag(time_us) OVER (PARTITION BY cluster, run_id, job_id ORDER BY time_us, event) AS before_us
  FROM progress
  WHERE event IN ('save', 'start', 'restore', 'restart', 'end') AND coalesce(rank, 0) = 0)
SELECT time_us AS end_us, time_us - before_us AS gap_us
FROM marks WHERE event = 'save' AND event_before = 'save' AND time_us > before_us;
