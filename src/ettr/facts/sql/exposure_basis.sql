-- One row: what the exposure rests on. node_s, named_s: node-seconds, all and on named nodes.
-- named, counted, unknown: attempts that ran, whose nodes are named, only counted, or neither.
-- without_runtime: attempts that began, and no log says how long they ran.
-- least_nodes, most_nodes: of the smallest and of the largest attempt that ran; those that are named
-- where no number is known, null where that is known of none.
-- keep: no
WITH judged AS (
  SELECT node_s, named, n_held, coalesce(coalesce(elapsed_s, node_s) > 0, FALSE) AS ran,
         NOT named AND coalesce(n_nodes > 0, FALSE) AS counted,
         start_us IS NOT NULL AND elapsed_s IS NULL AND node_s IS NULL AS unsaid,
         CASE WHEN elapsed_s > 0 AND coalesce(n_nodes, n_held) > 0 THEN coalesce(n_nodes, n_held) END
           AS size
  FROM exposure)
SELECT coalesce(sum(CASE WHEN ran THEN node_s END), 0.0) AS node_s,
       coalesce(sum(CASE WHEN ran AND named THEN node_s END), 0.0) AS named_s,
       coalesce(sum(CASE WHEN ran AND named THEN 1 END), 0) AS named,
       coalesce(sum(CASE WHEN ran AND counted THEN 1 END), 0) AS counted,
       coalesce(sum(CASE WHEN ran AND NOT named AND NOT counted THEN 1 END), 0) AS unknown,
       coalesce(sum(CASE WHEN unsaid THEN 1 END), 0) AS without_runtime,
       min(size) AS least_nodes, max(size) AS most_nodes
FROM judged
