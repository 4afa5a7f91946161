-- One row is an episode of a fault, as far as the faults of nodes need it. rank: lower is stronger.
-- keep: no
SELECT cluster, node, "check", symptom, rank, first_us, last_us FROM all_episodes
