-- The selected attempts: how many, how long, of what size.

-- One row: what the chosen attempts lack or contradict, as counts of attempts.
-- started: ran; running: began and have no end; pending: neither.
-- early, backward: began before their submission, ended before their start; mismatch: their runtime
-- is not the time from start to end. no_nodes, no_gpus: ran, and no node or number of GPUs is named.
-- node_s: node-seconds of those that name their number of nodes.
-- first_us, last_us: the first start, and the last end or start; null without any.
-- keep: no
CREATE TABLE attempt_checks AS
WITH judged AS (
  SELECT start_us, end_us, submit_us, node_list, n_gpus,
         coalesce(parts_node_s, elapsed_s * n_nodes) AS node_s,
         coalesce(start_us IS NOT NULL AND elapsed_s > 0, FALSE) AS ran,
         end_us // 1000000 - start_us // 1000000 AS lasted_s,
         elapsed_s + coalesce(suspended_s, 0.0) AS stated_s
  FROM chosen),
counted AS (
  SELECT sum(CASE WHEN ran THEN 1 END) AS started,
         sum(CASE WHEN start_us IS NOT NULL AND end_us IS NULL THEN 1 END) AS running,
         sum(CASE WHEN start_us IS NULL AND end_us IS NULL THEN 1 END) AS pending,
         sum(CASE WHEN start_us < submit_us THEN 1 END) AS early,
         sum(CASE WHEN end_us < start_us THEN 1 END) AS backward,
         sum(CASE WHEN lasted_s - stated_s > 60 OR stated_s - lasted_s > 60 THEN 1 END) AS mismatch,
         sum(CASE WHEN ran AND node_list IS NULL THEN 1 END) AS no_nodes,
         sum(CASE WHEN ran AND n_gpus IS NULL THEN 1 END) AS no_gpus,
         sum(node_s) AS node_s, min(start_us) AS first_us,
         max(start_us) AS last_start_us, max(end_us) AS last_end_us
  FROM judged)
SELECT coalesce(started, 0) AS started, coalesce(running, 0) AS running,
       coalesce(pending, 0) AS pending, coalesce(early, 0) AS early,
       coalesce(backward, 0) AS backward, coalesce(mismatch, 0) AS mismatch,
       coalesce(no_nodes, 0) AS no_nodes, coalesce(no_gpus, 0) AS no_gpus, node_s, first_us,
       CASE WHEN last_end_us IS NULL OR last_start_us > last_end_us THEN last_start_us
            ELSE last_end_us END AS last_us
FROM counted;

-- One row is an end state of the chosen attempts; those that have not ended stand as they are.
-- gpu_s, node_s: seconds of chosen GPUs and nodes held; null where some ran and none says how many.
-- keep: no
CREATE TABLE status AS
WITH counted AS (
  SELECT state, belongs, coalesce(elapsed_s > 0, FALSE) AS ran,
         coalesce(parts_gpu_s, elapsed_s * n_gpus) * node_share AS gpu_s,
         coalesce(parts_node_s, elapsed_s * n_nodes) * node_share AS node_s
  FROM chosen)
SELECT state, sum(CASE WHEN belongs THEN 1 ELSE 0 END) AS attempts,
       CASE WHEN max(CASE WHEN ran THEN 1 ELSE 0 END) > 0 THEN sum(CASE WHEN ran THEN gpu_s END)
            ELSE 0.0 END AS gpu_s,
       CASE WHEN max(CASE WHEN ran THEN 1 ELSE 0 END) > 0 THEN sum(CASE WHEN ran THEN node_s END)
            ELSE 0.0 END AS node_s
FROM counted GROUP BY state;

-- One row: attempts and jobs of the selection, and what they held.
-- jobs: lineages (a requeue is the same job), without those that were cancelled before they ran.
-- ran: attempts that ran, as the log has them: parts of a heterogeneous job apart.
-- cpu_s, node_s, gpu_s: seconds held; null where none of those names its count.
-- keep: no
CREATE TABLE totals AS
WITH lineages AS (
  SELECT DISTINCT cluster, job_id, "user", name FROM chosen
  WHERE belongs AND NOT (state = 'CANCELLED' AND coalesce(elapsed_s, 0.0) = 0)),
counts AS (
  SELECT count(*) AS all_rows, sum(CASE WHEN belongs THEN 1 ELSE 0 END) AS attempts FROM chosen),
held_by AS (
  SELECT count(*) AS ran, sum(elapsed_s * node_share * n_cpus) AS cpu_s,
         sum(coalesce(parts_node_s, elapsed_s * n_nodes) * node_share) AS node_s,
         sum(coalesce(parts_gpu_s, elapsed_s * n_gpus) * node_share) AS gpu_s
  FROM accounted WHERE elapsed_s > 0),
lineage_count AS (SELECT count(*) AS jobs FROM lineages)
SELECT jobs, coalesce(attempts, 0) AS attempts, ran, cpu_s, node_s, gpu_s
FROM lineage_count CROSS JOIN counts CROSS JOIN held_by;

-- One row is a number of GPUs and of nodes of chosen attempts that began.
-- n_rows: how many; attempts: those that count; ran: those that ran for any time. gpu_s, node_s: seconds
-- of chosen GPUs and nodes that these held; null where none says how many. job_s: seconds run.
-- keep: no
CREATE TABLE chosen_shapes AS
WITH began AS (
  SELECT n_gpus, n_nodes, belongs, elapsed_s, coalesce(elapsed_s > 0, FALSE) AS ran,
         coalesce(parts_gpu_s, elapsed_s * n_gpus) * node_share AS gpu_s,
         coalesce(parts_node_s, elapsed_s * n_nodes) * node_share AS node_s
  FROM chosen WHERE start_us IS NOT NULL)
SELECT n_gpus, n_nodes, count(*) AS n_rows, sum(CASE WHEN belongs THEN 1 ELSE 0 END) AS attempts,
       sum(CASE WHEN ran THEN 1 ELSE 0 END) AS ran, sum(CASE WHEN ran THEN gpu_s END) AS gpu_s,
       sum(CASE WHEN ran THEN node_s END) AS node_s, coalesce(sum(elapsed_s), 0.0) AS job_s
FROM began GROUP BY n_gpus, n_nodes;

-- One row at most: a selected attempt, where there is any.
-- keep: no
CREATE TABLE chosen_some AS
SELECT attempt_id FROM chosen LIMIT 1;

-- One row is a program of which chosen attempts began: a job's name, those that differ in numbers alone
-- being one; '' without a name. "user": null where the log has none. n: how many began.
-- keep: no
CREATE TABLE programs AS
WITH named AS (
  SELECT cluster, "user", regexp_replace(coalesce(name, ''), '[0-9]+', '#', 'g') AS program
  FROM chosen WHERE start_us IS NOT NULL)
SELECT cluster, "user", program, count(*) AS n FROM named GROUP BY cluster, "user", program;

-- One row is a runtime of chosen attempts that began: elapsed_s. n: how many ran that long.
-- keep: no
CREATE TABLE runtimes AS
SELECT elapsed_s, count(*) AS n FROM chosen
WHERE start_us IS NOT NULL AND elapsed_s IS NOT NULL GROUP BY elapsed_s;

-- One row: how many chosen attempts ran of which no log names a node (attempts).
-- keep: no
CREATE TABLE ran_unplaced AS
SELECT count(*) AS attempts FROM chosen c
WHERE c.elapsed_s > 0
  AND NOT EXISTS (SELECT 1 FROM allocations a WHERE a.attempt_id = c.attempt_id);

-- One row is a size of the chosen attempts that ended after scored_from_s and until scored_to_s, in
-- seconds from 1970: n_ended.
-- keep: no
CREATE TABLE ended_by_size AS
SELECT n_gpus, n_nodes, count(*) AS n_ended FROM chosen
WHERE start_us IS NOT NULL AND end_us // 1000000 > $scored_from_s AND end_us // 1000000 <= $scored_to_s
GROUP BY n_gpus, n_nodes;

-- One row: attempts of the period that began, and of which no log says their GPUs. One that goes on is
-- of the last period.
-- keep: no
CREATE TABLE attempts_without_gpus AS
SELECT count(*) AS n FROM run_asked
WHERE start_us IS NOT NULL AND n_gpus IS NULL
  AND ($since_us IS NULL OR end_us >= $since_us OR (end_us IS NULL AND $until_us IS NULL))
  AND ($until_us IS NULL OR end_us < $until_us)
  AND ($every_cluster OR cluster IN (SELECT cluster FROM asked_clusters));
