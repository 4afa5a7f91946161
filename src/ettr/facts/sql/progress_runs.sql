-- One row is a training run on one cluster as progress has it; cluster: null where not recorded.
-- last_us: when the last of its events was over.
-- keep: no
SELECT run_id, cluster, max(time_us) AS last_us FROM progress GROUP BY run_id, cluster
