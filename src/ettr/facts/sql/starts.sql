-- How the logs of a cluster begin: what ran before the first end.

-- One row is a cluster with attempts, and how its logs begin; times in whole seconds but for *_us.
-- submit_us, start_us: the first submission and start; null without any.
-- Of attempts that ran for a time, null or 0 where none did: ended, running: how many have an end, and
-- how many none; first_s: when the first ended; last_start_s: when the last began; job_s, node_s: seconds
-- and node-seconds that they ran. early_node_s: node-seconds before first_s.
CREATE TABLE cluster_starts AS
WITH timed AS (
  SELECT cluster, submit_us, start_us, coalesce(start_us IS NOT NULL AND elapsed_s > 0, FALSE) AS ran,
         start_us // 1000000 AS start_s, end_us // 1000000 AS end_s, elapsed_s,
         coalesce(n_nodes, 1) AS n_nodes,
         coalesce(parts_node_s, elapsed_s * coalesce(n_nodes, 1)) AS node_s
  FROM all_attempts),
summed AS (
  SELECT cluster, min(submit_us) AS submit_us, min(start_us) AS start_us,
         min(CASE WHEN ran THEN end_s END) AS first_s,
         count(CASE WHEN ran THEN end_s END) AS ended,
         count(CASE WHEN ran AND end_s IS NULL THEN 1 END) AS running,
         max(CASE WHEN ran THEN start_s END) AS last_start_s,
         sum(CASE WHEN ran THEN elapsed_s END) AS job_s,
         sum(CASE WHEN ran THEN node_s END) AS node_s
  FROM timed GROUP BY cluster),
early AS (
  SELECT t.cluster, sum((s.first_s - t.start_s) * t.n_nodes) AS early_node_s
  FROM timed t JOIN summed s ON t.cluster = s.cluster
  WHERE t.ran AND t.start_s < s.first_s GROUP BY t.cluster)
SELECT s.cluster, s.submit_us, s.start_us, s.first_s, s.ended, s.running, s.last_start_s, s.job_s, s.node_s,
       coalesce(e.early_node_s, 0) AS early_node_s
FROM summed s LEFT JOIN early e ON s.cluster = e.cluster;

-- One row is a class of ages that attempts had at the first end on their cluster, and one at which they
-- left, of clusters with a share of $least_share of their node-seconds before that end. A class of ages is
-- an eighth of an octave of seconds.
-- entered: the first class, -1 where they had not begun; left_at: the second; is_over: they have an end
-- after the first one. jobs: how many; late_job_s: seconds that they ran after the last one began.
-- keep: no
CREATE TABLE ages_at_first_end AS
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
FROM classed GROUP BY cluster, entered, left_at, is_over;
