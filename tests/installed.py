"""Whether libraries are there, without loading them into every worker that collects."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def need(*names: str) -> None:
    """Skip the module that asks where a library is not installed.

    Of libraries that its tests load in other processes, or load themselves when they run.
    """
    if lacking := [name for name in names if find_spec(name) is None]:
        pytest.skip(f"could not import {', '.join(lacking)}", allow_module_level=True)
