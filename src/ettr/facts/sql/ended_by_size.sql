-- One row is a size of the chosen attempts that ended after scored_from_s and until scored_to_s, in
-- seconds from 1970: n_ended.
-- keep: no
SELECT n_gpus, n_nodes, count(*) AS n_ended FROM chosen
WHERE start_us IS NOT NULL AND end_us // 1000000 > $scored_from_s AND end_us // 1000000 <= $scored_to_s
GROUP BY n_gpus, n_nodes
