-- What users ran, and what failed without a fault of the site.

-- One row is a chosen attempt that counts as one, with all the time that it held, where a period cuts
-- `chosen`; columns as there.
-- keep: view
CREATE VIEW ended_joined AS
SELECT a.attempt_id, a.cluster, a.state, a."user", a.account, a.exit_code, a.exit_signal, a.n_nodes,
       a.node_list, a.start_us, a.elapsed_s, a.n_gpus, a.parts_gpu_s, c.belongs, c.node_share
FROM all_attempts a JOIN chosen c ON a.attempt_id = c.attempt_id
WHERE c.belongs;

-- One row is a group of selected attempts that failed without a fault of the site: of one end state,
-- user, account, exit, or of those that ran on one node alone, node. kind: which of these; name: null
-- where the log has none. cluster: of a node, else null.
-- n: attempts; known: those whose GPU-seconds are known; gpu_s: the sum of these, null without any.
-- keep: no
CREATE TABLE user_failures AS
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
FROM alone GROUP BY cluster, node;

-- One row is a user of a cluster, in all of the logs: held_s, node-seconds of attempts of several nodes.
-- keep: no
CREATE TABLE hours_of_users AS
SELECT cluster, "user", sum(coalesce(parts_node_s, elapsed_s * n_nodes)) AS held_s
FROM all_attempts WHERE n_nodes > 1 AND elapsed_s > 0 GROUP BY cluster, "user";

-- One row is a failure of the selection that blames a node, and whose it was.
-- keep: no
CREATE TABLE failures_of_users AS
SELECT f.cluster, f.node, a."user", f.end_us
FROM failures f LEFT JOIN attempts a ON f.attempt_id = a.attempt_id
WHERE f.node IS NOT NULL;
