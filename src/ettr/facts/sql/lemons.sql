-- What tells a bad node from bad luck.

-- One row is an attempt whose owner named nodes to keep off, as a list of nodes.
-- keep: no
CREATE TABLE exclusions AS
SELECT cluster, "user", job_id, excluded_nodes, submit_us
FROM attempts WHERE excluded_nodes IS NOT NULL;

-- One row is a ticket about a node, or a serial number that it reports; time_end_us: null where open.
-- keep: no
CREATE TABLE tickets AS
SELECT cluster, node, "check", code, entity, time_us, time_end_us
FROM events WHERE "check" IN ('ticket', 'serial') AND node IS NOT NULL;

-- One row is a failure of an attempt of several nodes that blames none, in all of the logs; "user":
-- whose it was, null where the log does not say.
-- keep: no
CREATE TABLE unblamed_failures AS
SELECT f.attempt_id, f.cluster, a."user"
FROM all_failures f LEFT JOIN attempts a ON f.attempt_id = a.attempt_id
WHERE f.node IS NULL AND f.n_nodes > 1;

-- One row is a node of a failed attempt of the selection of which no single node is blamed.
-- keep: no
CREATE TABLE unblamed_held AS
SELECT attempt_id, cluster, node FROM interrupted_held
WHERE attempt_id IN (SELECT attempt_id FROM failures WHERE node IS NULL);

-- One row is a node that failed attempts of the selection held, whichever node is blamed: n_failed.
-- keep: no
CREATE TABLE failed_on_nodes AS
SELECT cluster, node, count(*) AS n_failed FROM interrupted_held
WHERE attempt_id IN (SELECT attempt_id FROM failures) GROUP BY cluster, node;

-- One row is a failure of the selection whose attempt held one node. node: the one that it blames,
-- null where no single one can be. file_id, line: where the accounting has the attempt.
-- keep: no
CREATE TABLE failures_on_node AS
WITH on_node AS (
  SELECT DISTINCT attempt_id FROM interrupted_held
  WHERE cluster = $asked_cluster AND node = $asked_node)
SELECT f.attempt_id, f.end_us, f.job_id, a."user", f.state, f.n_nodes, f.n_gpus, f.symptom,
       f.confidence, f.node, f.evidence, a.file_id, a.line
FROM failure_texts f
JOIN on_node o ON f.attempt_id = o.attempt_id
LEFT JOIN attempts a ON f.attempt_id = a.attempt_id;

-- One row is a node of a failed attempt of the selection that held the node asked about.
-- has_error: 1 where an error was found on it in the window around the attempt's end.
-- keep: no
CREATE TABLE nodes_beside AS
WITH mine AS (
  SELECT DISTINCT attempt_id FROM interrupted_held
  WHERE cluster = $asked_cluster AND node = $asked_node
    AND attempt_id IN (SELECT attempt_id FROM failures))
SELECT h.attempt_id, h.node, 0 AS has_error
FROM interrupted_held h JOIN mine m ON h.attempt_id = m.attempt_id
UNION
SELECT o.attempt_id, o.node, 1 AS has_error
FROM all_observed o JOIN mine m ON o.attempt_id = m.attempt_id
WHERE o.fault;

-- One row is what a chosen attempt ran on the node asked about.
-- keep: no
CREATE TABLE held_on_node AS
SELECT start_us, elapsed_s FROM exposure_nodes
WHERE cluster = $asked_cluster AND node = $asked_node AND elapsed_s > 0;

-- One row is what a job of all logs held of a node of an asked name, in any cluster.
-- end_us: null where it goes on.
-- keep: no
CREATE TABLE held_on_asked AS
SELECT node, start_us, end_us FROM allocations WHERE node IN (SELECT node FROM asked_nodes);

-- One row is what a chosen attempt ran on a node that was claimed to be a lemon, and its size.
-- keep: no
CREATE TABLE held_on_claimed AS
SELECT e.cluster, e.node, e.start_us, e.elapsed_s, c.n_gpus, c.n_nodes
FROM exposure_nodes e
JOIN claimed_nodes n ON e.cluster = n.cluster AND e.node = n.node
LEFT JOIN chosen c ON e.attempt_id = c.attempt_id;

-- One row is what a chosen attempt ran on a node that was repaired.
-- keep: no
CREATE TABLE held_on_repaired AS
SELECT e.cluster, e.node, e.start_us, e.elapsed_s
FROM exposure_nodes e JOIN repaired_nodes r ON e.cluster = r.cluster AND e.node = r.node
WHERE e.elapsed_s > 0;
