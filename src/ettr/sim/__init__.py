"""Runs simulated event by event, for what closed forms do not hold: ages, bursts, spares."""
