-- One row is a selected attempt that a black hole ended, as in black_hole_starts.sql.
-- keep: no
SELECT b.hole, b.cluster, b.node, b.attempt_id, b."user", b.start_us, b.end_us, b.n_gpus, b.counted
FROM black_hole_starts b JOIN endings e ON b.attempt_id = e.attempt_id
WHERE b.early
