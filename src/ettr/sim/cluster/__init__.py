"""A whole cluster simulated event by event: nodes, jobs, a scheduler, checks, repairs, logs."""
