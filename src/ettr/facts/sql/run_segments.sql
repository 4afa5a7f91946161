-- One row is an attempt of a run, with its steps in the period as the first rank records them.
-- n: how many. step_s: the median of their durations; steps_s: all of them together.
-- n_gpus: of the attempt, null where the log does not say.
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
FROM met GROUP BY cluster, run_id, attempt_id ORDER BY cluster, run_id, attempt_id
