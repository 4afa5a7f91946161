-- One row is a run that was scheduled for long enough and ended in the period, with a selected attempt.
-- place: 1, 2, ... by GPU-hours, then by the time that it was scheduled. gpu_s: null where the GPUs of an
-- attempt are not known. attempts, chosen: all, and those selected where a run may be split. first_s,
-- last_s: from when it could start to its last end. worst_s, middle_s, best_s: productive seconds under the
-- assumptions.
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
  AND (NOT $runs_may_split OR chosen > 0)
