"""A store that stays up to date by itself, and what it says in metrics, JSON and a page."""
