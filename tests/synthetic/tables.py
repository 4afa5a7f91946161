"""Tables of a synthetic cluster by name."""

from __future__ import annotations

import pyarrow as pa

from ettr.tables import DERIVED, TABLES


def every_table(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """All tables, stored and derived; those not given are there without rows."""
    return {name: tables.get(name, one.empty()) for name, one in {**TABLES, **DERIVED}.items()}
