-- One row: all that is held of the selection, also by attempts that are not chosen.
-- keep: no
SELECT coalesce(sum(elapsed_s), 0.0) AS held_s FROM held
