-- One row is a node that interrupted attempts held or that a failure blames, and that is asked for: by its
-- name, by its type of GPU (cpu: it has none), or by both. from_us, to_us: since when and until when it was
-- of a type that is asked for.
WITH named AS (
  SELECT cluster, node FROM interrupted_held WHERE node IS NOT NULL
  UNION
  SELECT cluster, node FROM all_failures WHERE node IS NOT NULL),
counts AS (
  SELECT count(CASE WHEN kind = 'node' THEN 1 END) AS names,
         count(CASE WHEN kind = 'gpu_type' THEN 1 END) AS types
  FROM asked),
typed AS (
  SELECT cluster, node, from_us, to_us FROM node_classes
  WHERE CASE WHEN has_gpus THEN gpu_type ELSE 'cpu' END
          IN (SELECT name FROM asked WHERE kind = 'gpu_type')),
places AS (
  SELECT n.cluster, n.node, CASE WHEN c.types = 0 THEN 0 ELSE t.from_us END AS from_us,
         CASE WHEN c.types = 0 THEN 253402300800000000 ELSE t.to_us END AS to_us
  FROM named n CROSS JOIN counts c LEFT JOIN typed t ON n.cluster = t.cluster AND n.node = t.node
  WHERE c.names = 0 OR n.node IN (SELECT name FROM asked WHERE kind = 'node'))
SELECT cluster, node, from_us, to_us FROM places WHERE from_us IS NOT NULL
