-- Steps of ranks, and tests of bandwidth: which nodes are slow.

-- One row is a step of the period as a rank records it, of the clusters asked about. Columns as the table
-- progress.
-- keep: no
CREATE TABLE rank_steps AS
SELECT cluster, run_id, job_id, rank, time_us, step, duration_s, detail FROM progress
WHERE event = 'step' AND duration_s IS NOT NULL
  AND ($every_cluster OR cluster IN (SELECT name FROM asked WHERE kind = 'cluster'))
  AND ($since_us IS NULL OR time_us >= $since_us) AND ($until_us IS NULL OR time_us < $until_us)
ORDER BY run_id, rank, time_us;

-- One row is a step, as in rank_steps, of a chosen job whose cluster is known.
-- keep: no
CREATE TABLE rank_steps_of_jobs AS
WITH owned AS (
  SELECT coalesce(s.cluster, o.cluster) AS cluster, s.run_id, s.job_id, s.rank, s.step, s.time_us,
         s.duration_s, s.detail
  FROM rank_steps s LEFT JOIN progress_owners o ON s.job_id = o.job_id),
jobs AS (SELECT DISTINCT cluster, job_id FROM chosen)
SELECT s.cluster, s.run_id, s.job_id, s.rank, s.step, s.duration_s, s.detail
FROM owned s JOIN jobs j ON s.cluster = j.cluster AND s.job_id = j.job_id
ORDER BY s.run_id, s.rank, s.time_us;

-- One row is an attempt of a run, with its steps in the period as the first rank records them.
-- n: how many. step_s: the median of their durations; steps_s: all of them together.
-- n_gpus: of the attempt, null where the log does not say.
CREATE TABLE run_segments AS
WITH steps AS (
  SELECT run_id, cluster, job_id, rank, time_us, duration_s,
         min(rank) OVER (PARTITION BY run_id, cluster, job_id) AS first_rank
  FROM progress_owned
  WHERE event = 'step' AND duration_s > 0
    AND ($since_us IS NULL OR time_us >= $since_us) AND ($until_us IS NULL OR time_us < $until_us)),
met AS (
  SELECT s.run_id, c.attempt_id, s.cluster, s.duration_s, c.n_gpus,
         row_number() OVER (PARTITION BY s.run_id, c.attempt_id, s.cluster ORDER BY s.duration_s) AS place,
         count(*) OVER (PARTITION BY s.run_id, c.attempt_id, s.cluster) AS n
  FROM steps s JOIN chosen c ON s.cluster = c.cluster AND s.job_id = c.job_id
  WHERE s.rank = s.first_rank AND s.time_us >= c.start_us
    AND (c.end_us IS NULL OR s.time_us <= c.end_us))
SELECT cluster, run_id, attempt_id, max(n) AS n,
       avg(CASE WHEN 2 * place >= n AND 2 * place <= n + 2 THEN duration_s END) AS step_s,
       sum(duration_s) AS steps_s, max(n_gpus) AS n_gpus
FROM met GROUP BY cluster, run_id, attempt_id ORDER BY cluster, run_id, attempt_id;

-- One row is a node that an attempt of run_segments held.
-- keep: no
CREATE TABLE run_segments_held AS
SELECT attempt_id, node FROM allocations
WHERE node IS NOT NULL AND attempt_id IN (SELECT attempt_id FROM run_segments);

-- One row is a node of a test of bus bandwidth. test: which; message: the bandwidth, size and nodes.
-- keep: no
CREATE TABLE bandwidth_tests AS
SELECT cluster, node, entity AS test, message
FROM events
WHERE "check" = 'nccl-tests' AND code = 'busbw' AND node IS NOT NULL AND entity IS NOT NULL;
