-- One row: what the chosen attempts lack or contradict, as counts of attempts.
-- started: ran; running: began and have no end; pending: neither.
-- early, backward: began before their submission, ended before their start; mismatch: their runtime
-- is not the time from start to end. no_nodes, no_gpus: ran, and no node or number of GPUs is named.
-- node_s: node-seconds of those that name their number of nodes.
-- first_us: the first start; last_us: the last end or start; null without any.
WITH judged AS (
  SELECT start_us, end_us, submit_us, node_list, n_gpus,
         coalesce(parts_node_s, elapsed_s * n_nodes) AS node_s,
         coalesce(start_us IS NOT NULL AND elapsed_s > 0, FALSE) AS ran,
         end_us // 1000000 - start_us // 1000000 AS lasted_s,
         elapsed_s + coalesce(suspended_s, 0.0) AS stated_s
  FROM chosen),
counted AS (
  SELECT sum(CASE WHEN ran THEN 1 END) AS started,
         sum(CASE WHEN start_us IS NOT NULL AND end_us IS NULL THEN 1 END) AS running,
         sum(CASE WHEN start_us IS NULL AND end_us IS NULL THEN 1 END) AS pending,
         sum(CASE WHEN start_us < submit_us THEN 1 END) AS early,
         sum(CASE WHEN end_us < start_us THEN 1 END) AS backward,
         sum(CASE WHEN lasted_s - stated_s > 60 OR stated_s - lasted_s > 60 THEN 1 END) AS mismatch,
         sum(CASE WHEN ran AND node_list IS NULL THEN 1 END) AS no_nodes,
         sum(CASE WHEN ran AND n_gpus IS NULL THEN 1 END) AS no_gpus,
         sum(node_s) AS node_s, min(start_us) AS first_us,
         max(start_us) AS last_start_us, max(end_us) AS last_end_us
  FROM judged)
SELECT coalesce(started, 0) AS started, coalesce(running, 0) AS running,
       coalesce(pending, 0) AS pending, coalesce(early, 0) AS early,
       coalesce(backward, 0) AS backward, coalesce(mismatch, 0) AS mismatch,
       coalesce(no_nodes, 0) AS no_nodes, coalesce(no_gpus, 0) AS no_gpus, node_s, first_us,
       CASE WHEN last_end_us IS NULL OR last_start_us > last_end_us THEN last_start_us
            ELSE last_end_us END AS last_us
FROM counted
