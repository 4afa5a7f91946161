"""One run or a whole cluster, simulated event by event, for what closed forms do not hold."""
