-- One row is an interruption of the asked partitions, accounts, users, QOS and clusters that ended in the
-- period: one that ends at its end is no part of it.
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
  AND (CAST($until_us AS BIGINT) IS NULL OR e.end_us < CAST($until_us AS BIGINT))
