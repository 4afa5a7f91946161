-- One row is a job of the selected runs of progress as one attempt, from its first event to its last;
-- columns as `chosen`. state: only an `end` shows that it completed.
WITH spans AS (
  SELECT cluster, job_id, min(run_id) AS run_id,
         CAST(floor(min(time_us // 1000000 - coalesce(duration_s, 0.0))) AS BIGINT) AS start_s,
         (max(time_us) + 999999) // 1000000 AS end_s,
         max(CASE WHEN event = 'end' THEN 1 ELSE 0 END) AS ended
  FROM progress_recorded GROUP BY cluster, job_id)
SELECT cluster, cluster || '/' || job_id AS attempt_id, job_id, CAST(NULL AS VARCHAR) AS "user",
       run_id AS name, CASE WHEN ended = 1 THEN 'COMPLETED' ELSE 'UNKNOWN' END AS state,
       CAST(NULL AS BIGINT) AS n_gpus, CAST(NULL AS BIGINT) AS n_nodes,
       start_s * 1000000 AS submit_us, CAST(NULL AS BIGINT) AS eligible_us,
       start_s * 1000000 AS start_us, end_s * 1000000 AS end_us,
       CAST(end_s - start_s AS DOUBLE) AS elapsed_s, CAST(NULL AS DOUBLE) AS suspended_s,
       CAST(NULL AS VARCHAR) AS work_dir, CAST(NULL AS DOUBLE) AS parts_gpu_s, '' AS file_id
FROM spans
