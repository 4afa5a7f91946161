-- One row is a state of a node that the asked job held.
SELECT s.* FROM node_states s
WHERE s.cluster IN (SELECT cluster FROM history_attempts)
  AND s.node IN (SELECT node FROM history_held WHERE node IS NOT NULL)
