-- One row is a state of a node that the asked job held.
SELECT s.* FROM node_states s
WHERE s.cluster IN (SELECT cluster FROM job_attempts)
  AND s.node IN (SELECT node FROM job_held WHERE node IS NOT NULL)
