"""Values that a shell can complete."""

from __future__ import annotations


def source_names(incomplete: str) -> list[str]:
    """Names of log formats that begin so."""
    from ettr.sources.registry import all_sources

    return [name for name in all_sources() if name.startswith(incomplete)]


def vendor_names(incomplete: str) -> list[str]:
    """Vendors with verdicts on XID codes that begin so."""
    from ettr.taxonomy.catalogue import VENDORS

    return [name for name in VENDORS if name.startswith(incomplete)]


def table_names(incomplete: str) -> list[str]:
    """Tables that begin so, stored and derived."""
    from ettr.tables import DERIVED, TABLES

    return [name for name in (*TABLES, *DERIVED) if name.startswith(incomplete)]


def stored_table_names(incomplete: str) -> list[str]:
    """Tables that begin so and can be read from a file."""
    from ettr.tables import TABLES

    return [name for name in TABLES if name.startswith(incomplete)]
