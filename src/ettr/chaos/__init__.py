"""Faults on a schedule, injected into a running job: `schedule`, `run`, and the faults."""
