-- Node-time that the selected attempts ran.

-- One row is a chosen attempt, as in exposure_joined, where the node list of each attempt says all that it held: no join.
-- keep: small
CREATE VIEW exposure_listed AS
SELECT attempt_id, start_us, end_us, elapsed_s, n_nodes, n_gpus, belongs,
       CASE WHEN node_list IS NOT NULL AND n_nodes > 0 THEN n_nodes END AS n_held,
       coalesce(node_list IS NOT NULL AND n_nodes > 0 AND elapsed_s IS NOT NULL, FALSE) AS named,
       coalesce(CASE WHEN node_list IS NOT NULL AND n_nodes > 0 THEN elapsed_s * n_nodes END,
                parts_node_s, elapsed_s * n_nodes) AS node_s
FROM chosen;

-- One row is a chosen attempt and the node-time that it ran.
-- belongs: it counts as an attempt; the others add time alone. named: the log names its nodes.
-- n_held: its rows of the allocations, null without any.
-- node_s: node-seconds; the sum over its nodes where they are named, else their number times its
-- runtime; null where neither is known.
CREATE TABLE exposure_joined AS
WITH held_by AS (
  SELECT attempt_id, sum(elapsed_s) AS held_s, count(*) AS n_held FROM held GROUP BY attempt_id)
SELECT c.attempt_id, c.start_us, c.end_us, c.elapsed_s, c.n_nodes, c.n_gpus, h.n_held, c.belongs,
       h.held_s IS NOT NULL AS named,
       coalesce(h.held_s, c.parts_node_s, c.elapsed_s * c.n_nodes) AS node_s
FROM chosen c LEFT JOIN held_by h ON c.attempt_id = h.attempt_id;

-- One row: all that is held of the selection, also by attempts that are not chosen.
-- keep: no
CREATE TABLE held_totals AS
SELECT coalesce(sum(elapsed_s), 0.0) AS held_s FROM held;

-- One row is a node of a chosen attempt, with its time there; n_nodes is 1. An attempt that names no
-- node has one row, with node null and n_nodes its number of nodes.
-- keep: view
CREATE VIEW exposure_nodes_all AS
WITH named AS (
  SELECT cluster, node, attempt_id, start_us, elapsed_s, CAST(1 AS BIGINT) AS n_nodes
  FROM held WHERE attempt_id IN (SELECT attempt_id FROM chosen)),
counted AS (
  SELECT cluster, CAST(NULL AS VARCHAR) AS node, attempt_id, start_us, elapsed_s, n_nodes
  FROM chosen
  WHERE elapsed_s > 0 AND n_nodes > 0 AND attempt_id NOT IN (SELECT attempt_id FROM held))
SELECT cluster, node, attempt_id, start_us, elapsed_s, n_nodes FROM named
UNION ALL
SELECT cluster, node, attempt_id, start_us, elapsed_s, n_nodes FROM counted;

-- One row is a node of an attempt, as in exposure_nodes_all, where every held row is of a chosen
-- attempt and no attempt has its nodes counted alone.
-- keep: view
CREATE VIEW exposure_nodes_named AS
SELECT cluster, node, attempt_id, start_us, elapsed_s, CAST(1 AS BIGINT) AS n_nodes FROM held;

-- One row: what the exposure rests on. node_s, named_s: node-seconds, all and on named nodes.
-- named, counted, unknown: attempts that ran, whose nodes are named, only counted, or neither.
-- without_runtime: attempts that began, and no log says how long they ran.
-- least_nodes, most_nodes: of the smallest and of the largest attempt that ran; those that are named
-- where no number is known, null where that is known of none.
-- keep: no
CREATE TABLE exposure_basis AS
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
FROM judged;

-- One row is a number of GPUs and of nodes that chosen attempts had, began or not.
-- attempts: those that count; rows: with those that add hours alone. job_s: seconds run. node_s: node-
-- seconds. known_node_s, known_s: of those whose nodes are known; without_nodes: the others. begin_us,
-- end_us: from when to when any of them did; is_open: one goes on.
-- keep: no
CREATE TABLE exposure_shapes AS
WITH judged AS (
  SELECT n_gpus, n_nodes, start_us, end_us, node_s, belongs, coalesce(elapsed_s, 0.0) AS run_s,
         coalesce(node_s > 0 OR elapsed_s = 0, FALSE) AS is_known
  FROM exposure)
SELECT n_gpus, n_nodes, start_us IS NOT NULL AS began, count(*) AS n_rows,
       sum(CASE WHEN belongs THEN 1 ELSE 0 END) AS attempts, sum(run_s) AS job_s,
       sum(node_s) AS node_s, sum(CASE WHEN is_known THEN node_s END) AS known_node_s,
       sum(CASE WHEN is_known THEN run_s END) AS known_s,
       sum(CASE WHEN is_known THEN 0 ELSE 1 END) AS without_nodes, min(start_us) AS begin_us,
       max(end_us) AS end_us, max(CASE WHEN end_us IS NULL THEN 1 ELSE 0 END) = 1 AS is_open
FROM judged GROUP BY n_gpus, n_nodes, start_us IS NOT NULL;

-- One row is a node that chosen attempts held; node is null for those that name none.
-- node_s: node-seconds of all; ran_s: of those that ran, null where none did.
-- keep: no
CREATE TABLE node_hours AS
SELECT cluster, node, sum(elapsed_s * n_nodes) AS node_s,
       sum(CASE WHEN elapsed_s > 0 THEN elapsed_s * n_nodes END) AS ran_s
FROM exposure_nodes GROUP BY cluster, node;

-- One row is a node that chosen attempts held; node null: nodes that the logs do not name.
-- exposure_s: seconds that they ran on it, null where no log says; n: times that one held it.
-- keep: no
CREATE TABLE node_seconds AS
SELECT cluster, node, sum(elapsed_s * n_nodes) AS exposure_s, count(*) AS n FROM exposure_nodes
GROUP BY cluster, node ORDER BY cluster, node;

-- One row is a node that chosen attempts of more than $above_gpus GPUs ran on, as in node_seconds.
-- keep: no
CREATE TABLE node_seconds_large AS
SELECT cluster, node, sum(elapsed_s * n_nodes) AS exposure_s FROM exposure_nodes
WHERE attempt_id IN (SELECT attempt_id FROM exposure WHERE n_gpus > $above_gpus)
GROUP BY cluster, node HAVING sum(elapsed_s * n_nodes) > 0 ORDER BY cluster, node;

-- One row is a node in a cell of time in which chosen attempts ran on it: held_s. Starts count in
-- whole seconds. cell: its place; from_s, to_s: its edges, in seconds from 1970.
-- keep: no
CREATE TABLE node_cells AS
WITH timed AS (
  SELECT cluster, node, start_us // 1000000 AS start_s, start_us // 1000000 + elapsed_s AS end_s
  FROM exposure_nodes WHERE node IS NOT NULL AND start_us IS NOT NULL AND elapsed_s IS NOT NULL),
inside AS (
  SELECT t.cluster, t.node, c.cell,
         CASE WHEN t.end_s < c.to_s THEN t.end_s ELSE c.to_s END
         - CASE WHEN t.start_s > c.from_s THEN t.start_s ELSE c.from_s END AS held_s
  FROM timed t JOIN time_cells c ON t.start_s < c.to_s AND t.end_s > c.from_s)
SELECT cluster, node, cell, sum(held_s) AS held_s
FROM inside WHERE held_s > 0 GROUP BY cluster, node, cell;

-- One row is a cell of the calendar ($cells_step_s long, from $cells_origin_s) in which node-time
-- begins (sign 1) or ends (sign -1), of large jobs and of others. Node-days before any edge follow
-- without cutting an attempt in pieces.
-- weight: nodes in use, by the part of the time in which they were; moment: weight times the second
-- since the origin.
-- keep: no
CREATE TABLE ran_cells AS
WITH began AS (
  SELECT coalesce(n_gpus > $above_gpus, FALSE) AS is_large, coalesce(node_s, 0.0) AS node_s,
         start_us // 1000000 - $cells_origin_s AS begin_s,
         CASE WHEN end_us IS NULL
              THEN start_us // 1000000 - $cells_origin_s + CAST(round(elapsed_s) AS BIGINT)
              ELSE end_us // 1000000 - $cells_origin_s END AS end_s
  FROM exposure WHERE start_us IS NOT NULL AND elapsed_s > 0),
spans AS (
  SELECT is_large, node_s, begin_s, CASE WHEN end_s > begin_s THEN end_s ELSE begin_s + 1 END AS until_s
  FROM began),
ends AS (
  SELECT 1 AS sign, is_large, begin_s AS at_s, node_s / (until_s - begin_s) AS weight FROM spans
  UNION ALL
  SELECT -1 AS sign, is_large, until_s AS at_s, node_s / (until_s - begin_s) AS weight FROM spans),
placed AS (
  SELECT sign, is_large, at_s, weight,
         CASE WHEN at_s <= 0 THEN 0 ELSE (at_s + $cells_step_s - 1) // $cells_step_s END AS cell
  FROM ends)
SELECT sign, is_large, cell, sum(weight) AS weight, sum(weight * at_s) AS moment
FROM placed GROUP BY sign, is_large, cell ORDER BY cell;

-- One row is what a chosen attempt ran on a node. node: with the cluster before it, null where the logs
-- name no node; n_nodes is then the number of its nodes, else 1.
-- keep: no
CREATE TABLE held_spans AS
SELECT cluster || '/' || node AS node, start_us, elapsed_s, n_nodes FROM exposure_nodes;
