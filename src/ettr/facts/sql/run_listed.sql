-- One row is a run of run_sums.sql that is listed, in its order.
-- keep: no
SELECT * FROM run_sums WHERE place <= $runs_listed ORDER BY place
