-- One row is a run of run_sums.sql, in its order, without its words.
-- keep: no
SELECT attempts, chosen, n_gpus, n_nodes, queue_s, scheduled_s, gpu_s, worst_s, middle_s, best_s
FROM run_sums ORDER BY place
