"""Where the real data lies that the tests may read and the project never carries."""

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("ETTR_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def shared(relative: str) -> Path:
    """Path of a shared file or folder; skips the test where it is absent."""
    path = SHARED / relative
    if not path.exists():
        pytest.skip(f"needs {relative} of the shared data beside the checkout")
    return path
