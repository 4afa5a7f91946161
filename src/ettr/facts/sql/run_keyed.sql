-- One row is an attempt that ran, with the key of its run: cluster, kind and key_1 to key_3.
-- kind: id (a run id that the user gives or progress shows: key_1), name (user, name and folder) or
-- job (job and user). chain: the first job of a chain that it is in (chained). Times *_s are whole
-- seconds since 1970; a running attempt ends where the log was taken. gpu_s: GPU-seconds, null where
-- its GPUs are not known.
-- keep: small
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
FROM ended
