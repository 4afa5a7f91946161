-- All attempts of the logs, whatever is selected.

-- One row is an attempt of which a node ran for another time than the attempt: a pod was replaced, or a
-- worker came later. Its node-time is what its allocations say, never its time times its nodes.
-- Batch schedulers give each node the time of the attempt: what they say is not looked at.
CREATE TABLE moved_attempts AS
SELECT DISTINCT a.attempt_id
FROM allocations a JOIN attempts t ON a.attempt_id = t.attempt_id
WHERE a.source NOT IN ('slurm-sacct', 'slurm-sacct-json', 'slurm-jobs', 'pbs', 'lsf', 'flux', 'simulation')
  AND (a.elapsed_s <> t.elapsed_s OR a.start_us <> t.start_us);

-- One row is a cluster with attempts: whether any of them ran, and any that ran names its GPUs; whether
-- one that goes on was suspended for a time. 1: yes.
-- keep: no
CREATE TABLE ran_of_clusters AS
SELECT cluster, max(CASE WHEN elapsed_s > 0 THEN 1 ELSE 0 END) AS ran,
       max(CASE WHEN elapsed_s > 0 AND n_gpus IS NOT NULL THEN 1 ELSE 0 END) AS names_gpus,
       max(CASE WHEN end_us IS NULL AND suspended_s > 0 THEN 1 ELSE 0 END) AS open_suspended
FROM attempts GROUP BY cluster;

-- One row: of jobs that count restarts, restarts: how many; unseen: attempts that these lead to and the
-- logs lack; both null where none counts any. known: attempts that say a number, 0 too.
-- keep: no
CREATE TABLE unseen_attempts AS
WITH restarted AS (SELECT DISTINCT cluster, job_id FROM attempts WHERE restarts > 0),
by_job AS (
  SELECT a.cluster, a.job_id, max(a.restarts) AS restarts, count(*) AS held
  FROM attempts a JOIN restarted r ON a.cluster = r.cluster AND a.job_id = r.job_id
  GROUP BY a.cluster, a.job_id),
counted AS (SELECT count(restarts) AS known FROM attempts),
summed AS (
  SELECT sum(restarts) AS restarts,
         sum(CASE WHEN restarts + 1 > held THEN restarts + 1 - held ELSE 0 END) AS unseen
  FROM by_job)
SELECT known, restarts, unseen FROM counted CROSS JOIN summed;

-- One row: whether a job has several attempts among the first $first_rows rows of all attempts.
-- n: attempts; jobs: how many jobs these are.
-- keep: no
CREATE TABLE repeated_jobs AS
WITH by_job AS (
  SELECT cluster, job_id, count(*) AS n
  FROM (SELECT cluster, job_id FROM attempts LIMIT $first_rows) some_attempts
  GROUP BY cluster, job_id)
SELECT coalesce(sum(n), 0) AS n, count(*) AS jobs FROM by_job;

-- One row: node-seconds of all attempts, and of those with GPUs; who does not say its nodes had one.
-- keep: no
CREATE TABLE size_units AS
WITH timed AS (
  SELECT n_gpus, coalesce(parts_node_s, elapsed_s * coalesce(n_nodes, 1)) AS node_s FROM all_attempts)
SELECT sum(node_s) AS all_s, sum(CASE WHEN n_gpus > 0 THEN node_s END) AS with_gpus_s FROM timed;
