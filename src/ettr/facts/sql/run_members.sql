-- One row is an attempt of a listed run; place: that of its run in run_sums.sql.
SELECT s.place, p.cluster, p.job_id, p.attempt_id, p.start_s, p.end_s, p.suspended_s
FROM run_parts p
JOIN run_sums s ON p.key_number = s.key_number AND p.run_part = s.run_part AND p.run_job = s.run_job
WHERE s.place <= $runs_listed
