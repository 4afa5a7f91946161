-- One row is a partition that the jobs of all logs name.
-- keep: no
SELECT DISTINCT "partition" FROM attempts WHERE "partition" IS NOT NULL
