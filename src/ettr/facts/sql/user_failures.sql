-- One row is a group of selected attempts that failed without a fault of the site: of one end state,
-- user, account, exit, or of those that ran on one node alone, node. kind: which of these; name: null
-- where the log has none. cluster: of a node, else null.
-- n: attempts; known: those whose GPU-seconds are known; gpu_s: the sum of these, null without any.
-- keep: no
WITH own AS (
  SELECT e.attempt_id, e.cluster, e.state, e."user", e.account, e.n_nodes, e.node_list,
         CASE WHEN e.exit_signal > 0 THEN 'signal ' || CAST(e.exit_signal AS VARCHAR)
              ELSE 'exit code ' || CAST(e.exit_code AS VARCHAR) END AS ended,
         -- what did not run held nothing for any time, and what has no GPUs none for however long
         e.node_share * coalesce(
           e.parts_gpu_s, e.elapsed_s * e.n_gpus,
           CASE WHEN e.start_us IS NULL OR e.elapsed_s = 0 OR e.n_gpus = 0 THEN 0.0 END) AS gpu_s
  FROM ended e LEFT JOIN all_failures f ON e.attempt_id = f.attempt_id
  WHERE e.belongs AND e.state IN ('FAILED', 'OUT_OF_MEMORY', 'TIMEOUT', 'DEADLINE')
    AND f.attempt_id IS NULL),
alone AS (
  SELECT cluster, node_list AS node, gpu_s FROM own
  WHERE $all_listed AND n_nodes = 1 AND node_list IS NOT NULL
  UNION ALL
  -- of chosen nodes these are all that is held, and the attempt may have held others
  SELECT min(h.cluster) AS cluster, min(h.node) AS node, max(o.gpu_s) AS gpu_s
  FROM own o JOIN held h ON o.attempt_id = h.attempt_id
  WHERE NOT $all_listed AND coalesce(o.n_nodes, 1) = 1
  GROUP BY o.attempt_id HAVING count(*) = 1)
SELECT 'state' AS kind, CAST(NULL AS VARCHAR) AS cluster, state AS name, count(*) AS n,
       count(gpu_s) AS known, sum(gpu_s) AS gpu_s
FROM own GROUP BY state
UNION ALL
SELECT 'user' AS kind, CAST(NULL AS VARCHAR) AS cluster, "user" AS name, count(*) AS n,
       count(gpu_s) AS known, sum(gpu_s) AS gpu_s
FROM own GROUP BY "user"
UNION ALL
SELECT 'account' AS kind, CAST(NULL AS VARCHAR) AS cluster, account AS name, count(*) AS n,
       count(gpu_s) AS known, sum(gpu_s) AS gpu_s
FROM own GROUP BY account
UNION ALL
SELECT 'exit' AS kind, CAST(NULL AS VARCHAR) AS cluster, ended AS name, count(*) AS n,
       count(gpu_s) AS known, sum(gpu_s) AS gpu_s
FROM own GROUP BY ended
UNION ALL
SELECT 'node' AS kind, cluster, node AS name, count(*) AS n,
       count(gpu_s) AS known, sum(gpu_s) AS gpu_s
FROM alone GROUP BY cluster, node
