"""A scenario fitted to a site, and judged by what it predicts of logs that were held back."""
