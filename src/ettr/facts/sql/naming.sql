-- Which cluster rows belong to whose log names none, by their files and nodes.

-- One row is a stored table that holds rows without a cluster's name ('cluster').
-- keep: no
CREATE TABLE unnamed_tables AS
SELECT 'attempts' AS name FROM (SELECT 1 FROM raw_attempts WHERE cluster = 'cluster' LIMIT 1) t1
UNION ALL
SELECT 'allocations' AS name FROM (SELECT 1 FROM raw_allocations WHERE cluster = 'cluster' LIMIT 1) t2
UNION ALL
SELECT 'nodes' AS name FROM (SELECT 1 FROM raw_nodes WHERE cluster = 'cluster' LIMIT 1) t3
UNION ALL
SELECT 'node_states' AS name FROM (SELECT 1 FROM raw_node_states WHERE cluster = 'cluster' LIMIT 1) t4
UNION ALL
SELECT 'events' AS name FROM (SELECT 1 FROM raw_events WHERE cluster = 'cluster' LIMIT 1) t5
UNION ALL
SELECT 'log_days' AS name FROM (SELECT 1 FROM raw_log_days WHERE cluster = 'cluster' LIMIT 1) t6;

-- One row is a cluster that a file of jobs, nodes or node states names.
-- keep: no
CREATE TABLE naming_files AS
SELECT DISTINCT cluster, file_id FROM raw_attempts
UNION
SELECT DISTINCT cluster, file_id FROM raw_nodes
UNION
SELECT DISTINCT cluster, file_id FROM raw_node_states;

-- One row is a node's name in logs that name clusters, or another name of such a node in logs that name
-- none: its host name is the same, under one domain. n_clusters: how many have a node of that name.
-- cluster: the first of them.
CREATE TABLE node_clusters AS
WITH places AS (
  SELECT node, cluster FROM raw_allocations WHERE cluster <> 'cluster'
  UNION
  SELECT node, cluster FROM raw_nodes WHERE cluster <> 'cluster'
  UNION
  SELECT node, cluster FROM raw_node_states WHERE cluster <> 'cluster'),
known AS (
  SELECT node, min(cluster) AS cluster, count(DISTINCT cluster) AS n_clusters
  FROM places WHERE node IS NOT NULL GROUP BY node),
logged AS (
  SELECT node FROM raw_events WHERE cluster = 'cluster'
  UNION
  SELECT node FROM raw_log_days WHERE cluster = 'cluster'),
strange AS (
  SELECT l.node, lower(split_part(l.node, '.', 1)) AS host, strpos(l.node, '.') AS dot
  FROM logged l LEFT JOIN known k ON l.node = k.node
  WHERE l.node IS NOT NULL AND k.node IS NULL),
one_domain AS (
  SELECT host FROM strange
  -- an address is no host name: it has no letter
  WHERE host <> upper(host) GROUP BY host
  HAVING count(DISTINCT CASE WHEN dot > 0 THEN lower(substr(node, dot)) END) <= 1),
hosts AS (
  SELECT lower(split_part(node, '.', 1)) AS host, min(cluster) AS cluster, count(DISTINCT cluster) AS n_clusters
  FROM places WHERE node IS NOT NULL GROUP BY 1)
SELECT node, cluster, n_clusters FROM known
UNION ALL
SELECT s.node, h.cluster, h.n_clusters
FROM strange s JOIN one_domain o ON s.host = o.host JOIN hosts h ON s.host = h.host;

-- One row is a file that names no cluster, at least half of whose nodes are nodes of named clusters.
-- cluster: whose they are; null where those that just one cluster has are of several.
CREATE TABLE file_clusters AS
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
FROM files_known WHERE 2 * n_known >= n_nodes;

-- One row is a cluster with attempts that list a number of GPUs. is_unknown: every such attempt lists
-- 0, which may be for want of accounting: its inventory, if any counts GPUs, has some.
-- keep: no
CREATE TABLE gpus_of_clusters AS
WITH of_jobs AS (
  SELECT cluster, max(n_gpus) AS most FROM named_attempts WHERE n_gpus IS NOT NULL GROUP BY cluster),
of_nodes AS (
  SELECT cluster, max(n_gpus) AS most FROM named_nodes WHERE n_gpus IS NOT NULL GROUP BY cluster)
SELECT j.cluster, j.most = 0 AND coalesce(n.most <> 0, TRUE) AS is_unknown
FROM of_jobs j LEFT JOIN of_nodes n ON j.cluster = n.cluster;

-- One row is a cluster with attempts, and the last time in each of their columns; null where it is empty.
-- keep: no
CREATE TABLE last_times AS
SELECT cluster, max(submit_us) AS submit_us, max(start_us) AS start_us, max(end_us) AS end_us
FROM named_attempts GROUP BY cluster;
