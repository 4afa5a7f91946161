-- One row is a line of progress from the rank of its job that is believed on restarts.
-- keep: no
SELECT p.cluster, p.job_id, p.time_us, p.event
FROM progress_owned p
JOIN restart_ranks r ON p.run_id = r.run_id AND p.cluster = r.cluster AND p.job_id = r.job_id
                    AND p.rank = r.rank
ORDER BY p.cluster, p.job_id, p.time_us, p.event
