-- Interruptions and failures of the selection.

-- One row is an interruption of the asked partitions, accounts, users, QOS and clusters that ended in the
-- period: one that ends at its end is no part of it.
CREATE TABLE asked_ends AS
WITH counts AS (
  SELECT count(CASE WHEN kind = 'partition' THEN 1 END) AS partitions,
         count(CASE WHEN kind = 'account' THEN 1 END) AS accounts,
         count(CASE WHEN kind = 'user' THEN 1 END) AS users,
         count(CASE WHEN kind = 'qos' THEN 1 END) AS qos,
         count(CASE WHEN kind = 'cluster' THEN 1 END) AS clusters
  FROM asked)
SELECT e.attempt_id
FROM all_endings e CROSS JOIN counts c
WHERE (c.partitions = 0 OR e."partition" IN (SELECT name FROM asked WHERE kind = 'partition'))
  AND (c.accounts = 0 OR e.account IN (SELECT name FROM asked WHERE kind = 'account'))
  AND (c.users = 0 OR e."user" IN (SELECT name FROM asked WHERE kind = 'user'))
  AND (c.qos = 0 OR e.qos IN (SELECT name FROM asked WHERE kind = 'qos'))
  AND (c.clusters = 0 OR e.cluster IN (SELECT name FROM asked WHERE kind = 'cluster'))
  AND (CAST($since_us AS BIGINT) IS NULL OR e.end_us >= CAST($since_us AS BIGINT))
  AND (CAST($until_us AS BIGINT) IS NULL OR e.end_us < CAST($until_us AS BIGINT));

-- One row is a node that interrupted attempts held or that a failure blames, and that is asked for: by its
-- name, by its type of GPU (cpu: it has none), or by both. from_us, to_us: since when and until when it was
-- of a type that is asked for.
CREATE TABLE asked_places AS
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
SELECT cluster, node, from_us, to_us FROM places WHERE from_us IS NOT NULL;

-- One row is an interrupted attempt that held an asked node. alone: it held no other.
CREATE TABLE asked_shares AS
SELECT h.attempt_id, count(p.node) = count(*) AS alone
FROM interrupted_held h LEFT JOIN asked_places p ON h.cluster = p.cluster AND h.node = p.node
  AND coalesce(h.start_us, 0) >= p.from_us AND coalesce(h.start_us, 0) < p.to_us
GROUP BY h.attempt_id HAVING count(p.node) > 0;

-- One row is a selected interruption on any node, as in all_endings.
CREATE TABLE endings_of_jobs AS
SELECT e.* FROM all_endings e JOIN asked_ends a ON e.attempt_id = a.attempt_id;

-- One row is a selected interruption of an attempt that held an asked node, as in all_endings.
CREATE TABLE endings_of_nodes AS
SELECT e.*
FROM all_endings e JOIN asked_ends a ON e.attempt_id = a.attempt_id
JOIN asked_shares s ON e.attempt_id = s.attempt_id;

-- One row is a selected failure on any node, as in all_failures.
CREATE TABLE failures_of_jobs AS
SELECT f.* FROM all_failures f JOIN asked_ends a ON f.attempt_id = a.attempt_id;

-- One row is a selected failure, as in all_failures, that blames an asked node, or that blames no
-- single one while its attempt held no other.
CREATE TABLE failures_of_nodes AS
SELECT f.*
FROM all_failures f JOIN asked_ends a ON f.attempt_id = a.attempt_id
LEFT JOIN asked_places p ON f.cluster = p.cluster AND f.node = p.node
  AND coalesce(f.start_us, 0) >= p.from_us AND coalesce(f.start_us, 0) < p.to_us
LEFT JOIN asked_shares s ON f.attempt_id = s.attempt_id
WHERE p.node IS NOT NULL OR (f.node IS NULL AND coalesce(s.alone, FALSE));

-- One row is a kind of the selected interruptions, as in all_endings. n: how many they are.
-- keep: no
CREATE TABLE ending_kinds AS
SELECT kind, count(*) AS n FROM endings GROUP BY kind;

-- One row is an attempt that is asked about (linked) and ended in the period, of the selected jobs.
-- keep: no
CREATE TABLE linked_ends AS
SELECT a.attempt_id FROM asked_ends a JOIN linked l ON a.attempt_id = l.attempt_id;
