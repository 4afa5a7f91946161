-- One row is a file that names no cluster, at least half of whose nodes are nodes of named clusters.
-- cluster: whose they are; null where those that just one cluster has are of several.
WITH places AS (
  SELECT file_id, node FROM raw_allocations WHERE cluster = 'cluster'
  UNION
  SELECT file_id, node FROM raw_nodes WHERE cluster = 'cluster'
  UNION
  SELECT file_id, node FROM raw_node_states WHERE cluster = 'cluster'
  UNION
  SELECT file_id, node FROM raw_events WHERE cluster = 'cluster'
  UNION
  SELECT file_id, node FROM raw_log_days WHERE cluster = 'cluster'),
known AS (
  SELECT p.file_id, n.n_clusters, CASE WHEN n.n_clusters = 1 THEN n.cluster END AS sure
  FROM places p LEFT JOIN node_clusters n ON p.node = n.node
  WHERE p.node <> ''),
files_known AS (
  SELECT file_id, count(*) AS n_nodes, count(n_clusters) AS n_known,
         count(DISTINCT sure) AS n_sure, min(sure) AS sure
  FROM known GROUP BY file_id)
SELECT file_id, CASE WHEN n_sure = 1 THEN sure END AS cluster
FROM files_known WHERE 2 * n_known >= n_nodes
