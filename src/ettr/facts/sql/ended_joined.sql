-- One row is a chosen attempt that counts as one, with all the time that it held, where a period cuts
-- `chosen`; columns as there.
-- keep: view
SELECT a.attempt_id, a.cluster, a.state, a."user", a.account, a.exit_code, a.exit_signal, a.n_nodes,
       a.node_list, a.start_us, a.elapsed_s, a.n_gpus, a.parts_gpu_s, c.belongs, c.node_share
FROM all_attempts a JOIN chosen c ON a.attempt_id = c.attempt_id
WHERE c.belongs
