-- One row: node-seconds of all attempts, and of those with GPUs; who does not say its nodes had one.
-- keep: no
SELECT sum(elapsed_s * coalesce(n_nodes, 1)) AS all_s,
       sum(CASE WHEN n_gpus > 0 THEN elapsed_s * coalesce(n_nodes, 1) END) AS with_gpus_s
FROM attempts
