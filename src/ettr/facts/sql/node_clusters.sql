-- One row is a node's name in logs that name clusters. n_clusters: how many have a node of that name.
-- cluster: the first of them.
WITH places AS (
  SELECT node, cluster FROM raw_allocations WHERE cluster <> 'cluster'
  UNION
  SELECT node, cluster FROM raw_nodes WHERE cluster <> 'cluster'
  UNION
  SELECT node, cluster FROM raw_node_states WHERE cluster <> 'cluster')
SELECT node, min(cluster) AS cluster, count(DISTINCT cluster) AS n_clusters
FROM places WHERE node IS NOT NULL GROUP BY node
