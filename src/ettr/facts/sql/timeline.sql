-- The largest attempts, and the nodes that they held.

-- One row is one of the largest chosen attempts that began on a node, of $least_size or more GPUs (nodes
-- where $sized_by_nodes), $most_shown of them at most; of one size the longest. place: from 1.
-- start_us, end_us, elapsed_s: of the whole attempt, of which a selection holds the part in its period.
-- kind: whose doing an interruption was, null without one. symptom, confidence, blamed: of a failure, as
-- in all_failures, null without one.
CREATE TABLE large_attempts AS
WITH largest AS (
  SELECT cluster, job_id, attempt_id, name, "user", state, start_us, end_us, elapsed_s, n_gpus, n_nodes,
         CASE WHEN $sized_by_nodes THEN n_nodes ELSE n_gpus END AS size
  FROM attempts
  WHERE attempt_id IN (SELECT attempt_id FROM chosen) AND start_us IS NOT NULL
    AND (n_nodes IS NULL OR n_nodes > 0)
    AND CASE WHEN $sized_by_nodes THEN n_nodes ELSE n_gpus END >= $least_size
  ORDER BY size DESC, elapsed_s DESC NULLS LAST, attempt_id LIMIT $most_shown)
SELECT l.cluster, l.job_id, l.attempt_id, l.name, l."user", l.state, l.start_us, l.end_us, l.elapsed_s,
       l.n_gpus, l.n_nodes, l.size, e.kind, f.symptom, f.confidence, f.node AS blamed,
       row_number() OVER (ORDER BY l.size DESC, l.elapsed_s DESC NULLS LAST, l.attempt_id) AS place
FROM largest l LEFT JOIN all_endings e ON l.attempt_id = e.attempt_id
LEFT JOIN all_failures f ON l.attempt_id = f.attempt_id;

-- One row is a chosen node that one of large_attempts held.
-- keep: no
CREATE TABLE held_by_large AS
SELECT attempt_id, node FROM held
WHERE node IS NOT NULL AND attempt_id IN (SELECT attempt_id FROM large_attempts);
