-- One row is a reason for which rows of a source were rejected: n_rows, and the first of them.
-- keep: no
WITH placed AS (
  SELECT source, reason, file_id, line, detail,
         row_number() OVER (PARTITION BY source, reason ORDER BY file_id, line) AS place
  FROM rejects)
SELECT source, reason, count(*) AS n_rows,
       max(CASE WHEN place = 1 THEN file_id END) AS file_id,
       max(CASE WHEN place = 1 THEN line END) AS line,
       max(CASE WHEN place = 1 THEN detail END) AS detail
FROM placed GROUP BY source, reason
