-- One row is a line of progress of the selected runs, where no other log has jobs: a job without an
-- id goes by that of its run. Columns as progress_owned.sql.
-- keep: view
SELECT coalesce(p.cluster, 'unnamed') AS cluster, p.run_id, coalesce(p.job_id, p.run_id) AS job_id,
       coalesce(p.rank, 0) AS rank, p.time_us, p.event, p.step, p.duration_s, p.detail,
       p.file_id, p.line
FROM progress p
JOIN recorded_runs r
  ON p.run_id = r.run_id AND coalesce(p.cluster, 'unnamed') = coalesce(r.cluster, 'unnamed')
