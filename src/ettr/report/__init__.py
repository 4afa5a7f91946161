"""Results rendered: one HTML file, JSON, text for a terminal. Nothing is computed here."""
