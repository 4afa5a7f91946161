-- One row is an attempt of a key that is asked for, with its run: key_number, run_part and run_job.
-- run_part: 0, 1, ... along the key, a gap or an end between two. run_job: in a sweep its job or its
-- chain, else ''. queue_s: from when it was eligible, or from when its predecessors had ended, to its
-- start. between_s: not even submitted. concurrent_s: from its start, while one that began before it
-- still ran. is_last: nothing of its run began later.
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
FROM readied
