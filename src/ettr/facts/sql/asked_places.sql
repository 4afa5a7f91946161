-- One row is a node that interrupted attempts held or that a failure blames, and that is asked for: by its
-- name, by its GPU type in the inventory (cpu: it has none), or by both.
WITH named AS (
  SELECT cluster, node FROM interrupted_held WHERE node IS NOT NULL
  UNION
  SELECT cluster, node FROM all_failures WHERE node IS NOT NULL),
typed AS (
  SELECT DISTINCT cluster, node FROM nodes
  WHERE gpu_type IN (SELECT name FROM asked WHERE kind = 'gpu_type')
  UNION
  SELECT cluster, node FROM node_classes
  WHERE NOT has_gpus AND 'cpu' IN (SELECT name FROM asked WHERE kind = 'gpu_type')),
counts AS (
  SELECT count(CASE WHEN kind = 'node' THEN 1 END) AS names,
         count(CASE WHEN kind = 'gpu_type' THEN 1 END) AS types
  FROM asked)
SELECT n.cluster, n.node
FROM named n CROSS JOIN counts c LEFT JOIN typed t ON n.cluster = t.cluster AND n.node = t.node
WHERE (c.names = 0 OR n.node IN (SELECT name FROM asked WHERE kind = 'node'))
  AND (c.types = 0 OR t.node IS NOT NULL)
