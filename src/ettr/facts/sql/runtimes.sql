-- One row is a runtime of chosen attempts that began: elapsed_s. n: how many ran that long.
-- keep: no
SELECT elapsed_s, count(*) AS n FROM chosen
WHERE start_us IS NOT NULL AND elapsed_s IS NOT NULL GROUP BY elapsed_s
