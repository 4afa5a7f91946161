"""Results as a JSON document: documented in docs/reference/report-json.md, and versioned."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

REPORT_FORMAT = "ettr-report"
REPORT_VERSION = 1


def plain(value: Any) -> Any:
    """A frozen result as what JSON holds: field names become keys, times ISO 8601 in UTC.

    A number that is not finite becomes null, as JSON has no name for it.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        # Spark hands out times in UTC without saying so
        aware = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        return aware.isoformat().replace("+00:00", "Z")
    if callable(value):
        return None
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
