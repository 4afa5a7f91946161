-- One row is a class of ages that attempts had at the first end on their cluster, and one at which they
-- left, of clusters with a share of $least_share of their node-seconds before that end. A class of ages is
-- an eighth of an octave of seconds.
-- entered: the first class, -1 where they had not begun; left_at: the second; is_over: they have an end
-- after the first one. jobs: how many; late_job_s: seconds that they ran after the last one began.
-- keep: no
WITH doubtful AS (
  SELECT cluster, first_s, last_start_s FROM cluster_starts
  WHERE ended > 0 AND early_node_s >= $least_share * node_s),
timed AS (
  SELECT a.cluster, d.first_s, d.last_start_s, a.start_us // 1000000 AS start_s,
         a.end_us // 1000000 AS end_s, CAST(a.elapsed_s AS BIGINT) AS elapsed_s
  FROM attempts a JOIN doubtful d ON a.cluster = d.cluster
  WHERE a.start_us IS NOT NULL AND a.elapsed_s > 0),
aged AS (
  SELECT cluster, first_s - start_s AS early_s, coalesce(end_s - start_s, elapsed_s) AS age_s,
         coalesce(end_s > first_s, FALSE) AS is_over,
         CASE WHEN end_s > last_start_s THEN end_s - last_start_s ELSE 0 END AS late_s
  FROM timed),
classed AS (
  SELECT cluster, is_over, late_s,
         CASE WHEN early_s > 0 THEN CAST(floor(8 * log2(early_s)) AS BIGINT) ELSE -1 END AS entered,
         CASE WHEN age_s > 1 THEN CAST(floor(8 * log2(age_s)) AS BIGINT) ELSE 0 END AS left_at
  FROM aged)
SELECT cluster, entered, left_at, is_over, count(*) AS jobs, sum(late_s) AS late_job_s
FROM classed GROUP BY cluster, entered, left_at, is_over
