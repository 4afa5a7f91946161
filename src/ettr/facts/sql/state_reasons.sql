-- One row is a reason that some state of a node gives; null where one gives none.
-- keep: no
SELECT DISTINCT reason FROM node_states
