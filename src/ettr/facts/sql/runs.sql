-- Runs: attempts of one training, job after job.

-- One row is a job whose training run progress shows in several jobs; recorded_run: that run.
CREATE TABLE recorded_ids AS
WITH shared AS (SELECT DISTINCT cluster, run_id, job_id FROM run_progress),
several AS (SELECT cluster, run_id FROM shared GROUP BY cluster, run_id HAVING count(*) > 1)
SELECT s.cluster, s.job_id, min(s.run_id) AS recorded_run
FROM shared s JOIN several v ON s.cluster = v.cluster AND s.run_id = v.run_id
GROUP BY s.cluster, s.job_id;

-- One row is an attempt that ran, with the key of its run: cluster, kind and key_1 to key_3.
-- kind: id (a run id that the user gives or progress shows: key_1), name (user, name and folder) or
-- job (job and user). chain: the first job of a chain that it is in (chained). Times *_s are whole
-- seconds since 1970; a running attempt ends where the log was taken. gpu_s: GPU-seconds, null where
-- its GPUs are not known.
-- keep: small
CREATE VIEW run_keyed AS
WITH ran AS (
  SELECT a.*, c.chain, CASE WHEN c.chain IS NULL THEN a.work_dir ELSE c.chain_dir END AS folder,
         coalesce(o.own_id, r.recorded_run) AS run_id, a.start_us // 1000000 AS start_s,
         a.submit_us // 1000000 AS submit_s
  FROM run_attempts a
  LEFT JOIN chained c ON a.cluster = c.cluster AND a.job_id = c.job_id
  LEFT JOIN run_own_ids o ON a.attempt_id = o.attempt_id
  LEFT JOIN recorded_ids r ON a.cluster = r.cluster AND a.job_id = r.job_id
  WHERE a.start_us IS NOT NULL AND a.elapsed_s > 0),
ended AS (
  SELECT r.*, CASE WHEN run_id IS NOT NULL THEN 'id'
                   WHEN "user" IS NOT NULL AND name IS NOT NULL THEN 'name' ELSE 'job' END AS kind,
         coalesce(end_us // 1000000,
                  start_s + CAST(round(elapsed_s + coalesce(suspended_s, 0.0)) AS BIGINT)) AS end_s
  FROM ran r)
SELECT cluster, attempt_id, job_id, "user", name, state, elapsed_s, n_gpus, n_nodes, chain, kind,
       CASE kind WHEN 'id' THEN run_id WHEN 'name' THEN "user" ELSE job_id END AS key_1,
       CASE kind WHEN 'id' THEN '' WHEN 'name' THEN name ELSE coalesce("user", '') END AS key_2,
       CASE kind WHEN 'name' THEN coalesce(folder, '') ELSE '' END AS key_3,
       start_s, end_s, submit_s, coalesce(eligible_us // 1000000, submit_s) AS eligible_s,
       coalesce(suspended_s, CASE WHEN end_s - start_s > elapsed_s THEN end_s - start_s - elapsed_s
                                  ELSE 0.0 END) AS suspended_s,
       coalesce(parts_gpu_s, elapsed_s * n_gpus) AS gpu_s
FROM ended;

-- One row is a key (run_keyed) of an attempt that the infrastructure failed.
CREATE TABLE run_keys_failed AS
WITH failed AS (
  SELECT DISTINCT cluster, kind, key_1, key_2, key_3 FROM run_keyed
  WHERE attempt_id IN (SELECT attempt_id FROM all_failures))
SELECT row_number() OVER (ORDER BY cluster, kind, key_1, key_2, key_3) AS key_number, cluster, kind,
       key_1, key_2, key_3
FROM failed;

-- One row is a key (run_keyed) of the asked clusters whose attempts ran for so long in all that
-- one of its runs may have been scheduled for long enough. key_number: from 1.
CREATE TABLE run_keys_long AS
WITH held AS (
  SELECT cluster, kind, key_1, key_2, key_3 FROM run_keyed
  WHERE ($run_min_gpus = 0 OR n_gpus >= $run_min_gpus)
    AND ($every_cluster OR cluster IN (SELECT cluster FROM asked_clusters))
  GROUP BY cluster, kind, key_1, key_2, key_3
  HAVING $run_min_scheduled_s <= 0 OR sum(end_s - start_s) >= $run_min_scheduled_s)
SELECT row_number() OVER (ORDER BY cluster, kind, key_1, key_2, key_3) AS key_number, cluster, kind,
       key_1, key_2, key_3
FROM held;

-- One row is an attempt of a key that is asked for, with its run: key_number, run_part and run_job.
-- run_part: 0, 1, ... along the key, a gap or an end between two. run_job: in a sweep its job or its
-- chain, else ''. queue_s: from when it was eligible, or from when its predecessors had ended, to its
-- start. between_s: not even submitted. concurrent_s: from its start, while one that began before it
-- still ran. is_last: nothing of its run began later.
CREATE TABLE run_parts AS
WITH keyed AS (
  SELECT k.key_number, a.* FROM run_keyed a
  JOIN run_keys k ON a.cluster = k.cluster AND a.kind = k.kind AND a.key_1 = k.key_1
                 AND a.key_2 = k.key_2 AND a.key_3 = k.key_3
  WHERE $run_min_gpus = 0 OR a.n_gpus >= $run_min_gpus),
chain_starts AS (
  SELECT key_number, chain, min(start_s) AS place_s FROM keyed WHERE chain IS NOT NULL
  GROUP BY key_number, chain),
placed AS (
  SELECT k.*, coalesce(c.place_s, k.start_s) AS place_s, coalesce(k.chain, '') AS place_id,
         coalesce(k.chain, k.job_id) AS task
  FROM keyed k LEFT JOIN chain_starts c ON k.key_number = c.key_number AND k.chain = c.chain),
along AS (
  SELECT p.*,
         max(end_s) OVER (PARTITION BY key_number ORDER BY place_s, place_id, start_s, attempt_id
                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS prior_end_s,
         lag(task) OVER (PARTITION BY key_number
                         ORDER BY place_s, place_id, start_s, attempt_id) AS prior_task,
         lag(chain) OVER (PARTITION BY key_number
                          ORDER BY place_s, place_id, start_s, attempt_id) AS prior_chain,
         lag(state) OVER (PARTITION BY key_number
                          ORDER BY place_s, place_id, start_s, attempt_id) AS prior_state
  FROM placed p),
judged AS (
  SELECT a.*,
         CASE WHEN kind = 'name' AND NOT coalesce(prior_chain = chain, FALSE)
                   AND (submit_s > prior_end_s + $run_gap_s
                        OR (prior_state = 'COMPLETED' AND prior_task <> task))
              THEN 1 ELSE 0 END AS breaks,
         CASE WHEN kind = 'name' AND prior_task <> task AND start_s < prior_end_s
              THEN 1 ELSE 0 END AS meets
  FROM along a),
parted AS (
  SELECT j.*, sum(breaks) OVER (PARTITION BY key_number
                                ORDER BY place_s, place_id, start_s, attempt_id
                                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS run_part
  FROM judged j),
swept AS (
  SELECT key_number, run_part, max(meets) AS swept FROM parted GROUP BY key_number, run_part),
of_runs AS (
  SELECT p.*, CASE WHEN s.swept = 1 THEN p.task ELSE '' END AS run_job
  FROM parted p JOIN swept s ON p.key_number = s.key_number AND p.run_part = s.run_part),
followed AS (
  SELECT r.*,
         max(end_s) OVER (PARTITION BY key_number, run_part, run_job ORDER BY start_s, attempt_id
                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS left_s,
         lead(attempt_id) OVER (PARTITION BY key_number, run_part, run_job
                                ORDER BY start_s, attempt_id) AS next_id
  FROM of_runs r),
readied AS (
  SELECT f.*, CASE WHEN left_s IS NULL THEN eligible_s WHEN submit_s > left_s THEN submit_s
                   ELSE left_s END AS ready_s,
         CASE WHEN left_s < end_s THEN left_s ELSE end_s END AS met_s
  FROM followed f)
SELECT key_number, CAST(run_part AS BIGINT) AS run_part, run_job, cluster, attempt_id, job_id,
       "user", name, state, elapsed_s, n_gpus, n_nodes, gpu_s, start_s, end_s, suspended_s,
       next_id IS NULL AS is_last,
       CASE WHEN start_s > ready_s THEN start_s - ready_s ELSE 0 END AS queue_s,
       CASE WHEN submit_s > left_s THEN submit_s - left_s ELSE 0 END AS between_s,
       CASE WHEN left_s IS NOT NULL AND met_s > start_s THEN met_s - start_s ELSE 0 END
         AS concurrent_s
FROM readied;

-- One row is an attempt of a run of several jobs of which the infrastructure failed one, in order of
-- time. run: the same number for attempts of one run.
-- keep: no
CREATE TABLE resubmitted AS
WITH several AS (
  SELECT key_number, run_part, run_job FROM run_parts GROUP BY key_number, run_part, run_job
  HAVING min(job_id) <> max(job_id)),
numbered AS (
  SELECT key_number, run_part, run_job,
         row_number() OVER (ORDER BY key_number, run_part, run_job) AS run
  FROM several)
SELECT n.run, p.cluster, p.attempt_id, p.job_id
FROM run_parts p
JOIN numbered n
  ON p.key_number = n.key_number AND p.run_part = n.run_part AND p.run_job = n.run_job
ORDER BY p.start_s, p.attempt_id;

-- One row is a run that was scheduled for long enough and ended in the period, with a selected attempt.
-- place: 1, 2, ... by GPU-hours, then by the time that it was scheduled. gpu_s: null where the GPUs of an
-- attempt are not known. attempts, chosen: all, and those selected where a run may be split. first_s,
-- last_s: from when it could start to its last end. worst_s, middle_s, best_s: productive seconds under the
-- assumptions.
CREATE TABLE run_sums AS
WITH parts AS (
  SELECT r.*, c.attempt_id IS NOT NULL AS is_chosen,
         r.end_s - r.start_s - r.concurrent_s AS alone_s,
         r.state NOT IN ('COMPLETED', 'RUNNING', 'SUSPENDED', 'COMPLETING') AS cut,
         CASE WHEN r.concurrent_s > $worst_restart_s THEN r.elapsed_s - r.concurrent_s
              ELSE r.elapsed_s - $worst_restart_s END AS worst_run_s,
         CASE WHEN r.concurrent_s > $middle_restart_s THEN r.elapsed_s - r.concurrent_s
              ELSE r.elapsed_s - $middle_restart_s END AS middle_run_s,
         CASE WHEN r.concurrent_s > $best_restart_s THEN r.elapsed_s - r.concurrent_s
              ELSE r.elapsed_s - $best_restart_s END AS best_run_s
  FROM run_parts r LEFT JOIN run_chosen c ON r.attempt_id = c.attempt_id),
kept AS (
  SELECT p.*,
         CASE WHEN worst_run_s <= 0 THEN 0.0 WHEN NOT cut THEN worst_run_s
              WHEN worst_run_s < $worst_lost_s THEN 0.0 ELSE worst_run_s - $worst_lost_s END
           * $worst_share AS worst_s,
         CASE WHEN middle_run_s <= 0 THEN 0.0 WHEN NOT cut THEN middle_run_s
              WHEN middle_run_s < $middle_lost_s THEN 0.0 ELSE middle_run_s - $middle_lost_s END
           * $middle_share AS middle_s,
         CASE WHEN best_run_s <= 0 THEN 0.0 WHEN NOT cut THEN best_run_s
              WHEN best_run_s < $best_lost_s THEN 0.0 ELSE best_run_s - $best_lost_s END
           * $best_share AS best_s
  FROM parts p),
sums AS (
  SELECT key_number, run_part, run_job, min(cluster) AS cluster, count(*) AS attempts,
         sum(CASE WHEN is_chosen THEN 1 ELSE 0 END) AS chosen, count(DISTINCT job_id) AS jobs,
         max(n_gpus) AS n_gpus, max(n_nodes) AS n_nodes, min(start_s - queue_s) AS first_s,
         max(end_s) AS last_s, sum(queue_s) AS queue_s, sum(between_s) AS between_s,
         sum(alone_s) AS scheduled_s, sum(concurrent_s) AS concurrent_s,
         sum(CASE WHEN suspended_s < alone_s THEN suspended_s ELSE alone_s END) AS suspended_s,
         CASE WHEN count(n_gpus) = count(*) THEN sum(gpu_s) END AS gpu_s,
         sum(worst_s) AS worst_s, sum(middle_s) AS middle_s, sum(best_s) AS best_s,
         max(CASE WHEN is_last THEN state END) AS last_state, min(name) AS name,
         min("user") AS "user", min(attempt_id) AS first_id
  FROM kept GROUP BY key_number, run_part, run_job)
SELECT row_number() OVER (ORDER BY coalesce(gpu_s, 0.0) DESC, scheduled_s DESC, first_id) AS place,
       key_number, run_part, run_job, cluster, attempts, jobs, n_gpus, n_nodes, first_s, last_s,
       CAST(chosen AS BIGINT) AS chosen, CAST(queue_s AS DOUBLE) AS queue_s,
       CAST(between_s AS DOUBLE) AS between_s, CAST(scheduled_s AS DOUBLE) AS scheduled_s,
       CAST(concurrent_s AS DOUBLE) AS concurrent_s, suspended_s, gpu_s, worst_s, middle_s, best_s,
       last_state, name, "user"
FROM sums
WHERE scheduled_s >= $run_min_scheduled_s
  AND ($since_us IS NULL OR last_s * 1000000 >= $since_us)
  AND ($until_us IS NULL OR last_s * 1000000 < $until_us)
  AND (NOT $runs_may_split OR chosen > 0);

-- One row is a run of run_sums that is listed, in its order.
-- keep: no
CREATE TABLE run_listed AS
SELECT * FROM run_sums WHERE place <= $runs_listed ORDER BY place;

-- One row is a run of run_sums, in its order, without its words.
-- keep: no
CREATE TABLE run_numbers AS
SELECT attempts, chosen, n_gpus, n_nodes, queue_s, scheduled_s, gpu_s, worst_s, middle_s, best_s
FROM run_sums ORDER BY place;

-- One row is an attempt of a listed run; place: that of its run in run_sums.
CREATE TABLE run_members AS
SELECT s.place, p.cluster, p.job_id, p.attempt_id, p.start_s, p.end_s, p.suspended_s
FROM run_parts p
JOIN run_sums s ON p.key_number = s.key_number AND p.run_part = s.run_part AND p.run_job = s.run_job
WHERE s.place <= $runs_listed;

-- One row is an attempt of a listed run that ended against its owner's wish. confidence: how sure its
-- cause is, where the infrastructure failed it; else null.
-- keep: no
CREATE TABLE run_ends AS
SELECT m.place, m.attempt_id, f.confidence
FROM run_members m
JOIN all_endings e ON m.attempt_id = e.attempt_id
LEFT JOIN all_failures f ON m.attempt_id = f.attempt_id
ORDER BY m.place, m.attempt_id;
