-- One row is a selected failure, whose it was, and where the accounting says it.
-- keep: no
SELECT e.attempt_id, e.name, e."user", e.account, e."partition", e.qos, e.node_list, e.file_id, e.line
FROM all_endings e JOIN failures f ON e.attempt_id = f.attempt_id
