-- One row is a number of nodes of the chosen attempts that completed; null where the log has none.
-- began: whether it says when they started. n: how many they were.
-- keep: no
SELECT n_nodes, start_us IS NOT NULL AS began, count(*) AS n
FROM chosen WHERE state = 'COMPLETED' AND end_us IS NOT NULL AND belongs
GROUP BY n_nodes, start_us IS NOT NULL
