-- One row is a line of progress of a job whose cluster is known: named, or the only one that has a
-- job of that id. Columns as the table progress.
-- keep: view
SELECT cluster, run_id, job_id, coalesce(rank, 0) AS rank, time_us, event, step, duration_s, detail,
       file_id, line
FROM progress WHERE job_id IS NOT NULL AND cluster IS NOT NULL
UNION ALL
SELECT o.cluster, p.run_id, p.job_id, coalesce(p.rank, 0) AS rank, p.time_us, p.event, p.step, p.duration_s, p.detail,
       p.file_id, p.line
FROM progress p JOIN progress_owners o ON p.job_id = o.job_id WHERE p.cluster IS NULL
