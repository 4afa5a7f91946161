-- One row: whether the allocations say no more than the lists of nodes of the attempts.
-- no_number: attempts with a list and without a number of nodes. unheld: attempts on one node whose list
-- is no name of a node that is held.
-- listed, held: rows that the lists ask for, and rows of the allocations; *_low, *_high: sums of both
-- halves of their hashes, with the attempt and its times. One row too many or too few, or of other
-- times, changes both; which nodes the rows name is not compared.
-- hash is DuckDB's, of 64 bits.
-- keep: no
WITH hashed AS (
  SELECT CASE WHEN n_nodes BETWEEN 0 AND 1000000000 THEN n_nodes END AS n_nodes,
         hash(attempt_id, start_us, end_us, elapsed_s) AS code
  FROM attempts WHERE node_list IS NOT NULL),
asked_for AS (
  SELECT count(*) - count(n_nodes) AS no_number, sum(n_nodes) AS listed,
         sum(CAST(code & 4294967295 AS BIGINT) * n_nodes) AS listed_low,
         sum(CAST(code >> 32 AS BIGINT) * n_nodes) AS listed_high
  FROM hashed),
hashed_held AS (SELECT hash(attempt_id, start_us, end_us, elapsed_s) AS code FROM allocations),
there AS (
  SELECT count(*) AS held, sum(CAST(code & 4294967295 AS BIGINT)) AS held_low,
         sum(CAST(code >> 32 AS BIGINT)) AS held_high
  FROM hashed_held),
singles AS (
  SELECT DISTINCT cluster, node_list FROM attempts WHERE n_nodes = 1 AND node_list IS NOT NULL),
unnamed AS (
  SELECT count(*) AS unheld FROM singles s
  LEFT JOIN node_mentions m ON s.cluster = m.cluster AND s.node_list = m.node AND m.table_name = 'allocations'
  WHERE m.node IS NULL)
SELECT no_number, unheld, coalesce(listed, 0) AS listed, coalesce(listed_low, 0) AS listed_low,
       coalesce(listed_high, 0) AS listed_high, held, coalesce(held_low, 0) AS held_low,
       coalesce(held_high, 0) AS held_high
FROM asked_for CROSS JOIN there CROSS JOIN unnamed
