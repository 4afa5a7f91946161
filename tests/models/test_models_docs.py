"""The code in the how-to runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "choose-a-failure-model.md"


@pytest.mark.slow
def test_the_example_of_the_how_to_runs():
    (code,) = re.findall(r"```python\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    rate, meaning, warning = done.stdout.splitlines()
    assert rate == "3.79 (3.49 to 4.11)"
    assert meaning.startswith("On 4,096 nodes the mean time to failure is 1.55 h")
    assert "2 times the largest job seen" in warning


def test_the_names_in_the_how_to_exist():
    from ettr.models import base, compare, data, dispersion, from_tables, registry

    for module, names in (
        (base, ("FailureModel", "Fit")),
        (from_tables, ("cut_at",)),
        (compare, ("compare_rates", "compare_counts", "compare_symptoms", "funnel")),
        (data, ("fleet_on_calendar", "Lifetimes", "Counts")),
        (dispersion, ("dispersion", "burstiness", "widest_window")),
        (from_tables, ("from_tables",)),
        (registry, ("compare_models", "lifetime_models", "count_models")),
    ):
        for name in names:
            assert hasattr(module, name)
            assert name in HOW_TO.read_text() or name in ("Fit", "Lifetimes", "Counts")
