-- One row is a node and a UTC day (days since 1970) on which attempts of several users, each on several
-- nodes and this one among them, ended FAILED within 600 s of their start.
-- keep: no
SELECT a.cluster, a.node, t.start_us // 86400000000 AS day
FROM attempts t JOIN allocations a ON t.attempt_id = a.attempt_id
WHERE t.state = 'FAILED' AND t.n_nodes > 1 AND t."user" IS NOT NULL
  AND t.start_us IS NOT NULL AND t.end_us IS NOT NULL AND t.elapsed_s <= 600
GROUP BY a.cluster, a.node, t.start_us // 86400000000
HAVING count(DISTINCT t."user") >= 3 AND count(*) >= 5
