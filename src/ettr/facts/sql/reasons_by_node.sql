-- One row is a reason that states of a node give: n_states, and the start of the first and the last.
-- keep: no
SELECT reason, cluster, node, count(*) AS n_states, min(start_us) AS first_us, max(start_us) AS last_us
FROM node_states WHERE reason IS NOT NULL GROUP BY reason, cluster, node
