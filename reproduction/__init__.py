"""Reproductions of published experiments; outside the package that is installed."""
