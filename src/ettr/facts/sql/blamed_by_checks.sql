-- One row is a size and a reach of the selected attempts that their nodes may have ended, though the
-- scheduler does not say so. n: how many. explained: a fault was observed in their window.
-- large: of more than $above_gpus GPUs. reach_s: seconds in which a check could blame them; one of unknown
-- runtime may have run for the whole window.
-- keep: no
WITH faulty AS (SELECT DISTINCT attempt_id FROM all_observed WHERE fault),
sized AS (
  SELECT e.n_nodes, coalesce(e.n_gpus > $above_gpus, FALSE) AS large, f.attempt_id IS NOT NULL AS explained,
         round(CASE WHEN e.elapsed_s < $before_us / 1000000.0 THEN e.elapsed_s
                    ELSE $before_us / 1000000.0 END) + $after_us / 1000000.0 AS reach_s
  FROM endings e LEFT JOIN faulty f ON e.attempt_id = f.attempt_id
  WHERE e.kind = 'hardware-candidate' AND NOT e.node_failed)
SELECT n_nodes, large, explained, CAST(reach_s AS DOUBLE) AS reach_s, count(*) AS n
FROM sized GROUP BY n_nodes, large, explained, reach_s
