-- One row is a key (run_keyed.sql) of an attempt that the infrastructure failed.
WITH failed AS (
  SELECT DISTINCT cluster, kind, key_1, key_2, key_3 FROM run_keyed
  WHERE attempt_id IN (SELECT attempt_id FROM all_failures))
SELECT row_number() OVER (ORDER BY cluster, kind, key_1, key_2, key_3) AS key_number, cluster, kind,
       key_1, key_2, key_3
FROM failed
