"""What would happen if: fitted models at another scale, and forecasts with bands."""
