"""Faults on a schedule, injected into a running job."""
