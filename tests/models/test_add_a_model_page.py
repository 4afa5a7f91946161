"""The example of docs/how-to/add-a-failure-model.md does what the page says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ettr.models import registry
from ettr.models.data import Lifetimes
from ettr.models.log_location_scale import LogLocationScale
from ettr.units import SECONDS_PER_DAY
from models.conformance import check_law_of_age, check_lifetimes

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "how-to" / "add-a-failure-model.md").read_text("utf-8")


@pytest.fixture
def law(monkeypatch: pytest.MonkeyPatch) -> LogLocationScale:
    """The model of the page, registered as the page says."""
    module, entry = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    made = ModuleType("ettr.models.log_logistic")
    exec(module, made.__dict__)  # noqa: S102 our own documentation
    monkeypatch.setitem(sys.modules, made.__name__, made)
    registered: dict[str, dict[str, str]] = {}
    exec(entry, registered)  # noqa: S102
    monkeypatch.setattr(
        registry, "LAWS_OF_AGE", {**registry.LAWS_OF_AGE, **registered["REGISTERED"]}
    )
    return registry.law_of_age("log-logistic")


def test_the_example_conforms(law: LogLocationScale) -> None:
    assert law.name in {model.name for model in registry.lifetime_models()}
    check_lifetimes(law)
    check_law_of_age(law)


def test_the_example_finds_the_law_that_lifetimes_follow(law: LogLocationScale) -> None:
    """The quantiles of median 30 days and shape 2, none of them cut."""
    share = (np.arange(4000) + 0.5) / 4000
    lasted_days = 30.0 * (share / (1.0 - share)) ** (1.0 / 2.0)
    fit = law.fit(Lifetimes(lasted_days * SECONDS_PER_DAY, np.ones(share.size)))
    assert fit.parameter("median").estimate == pytest.approx(30.0 * SECONDS_PER_DAY, rel=1e-3)
    assert fit.parameter("shape").estimate == pytest.approx(2.0, rel=1e-2)
    assert fit.parameter("shape").contains(2.0)
    assert "may rise before it falls" in fit.meaning


def test_every_registered_model_has_a_row_in_the_explanation() -> None:
    text = (DOCS / "explanation" / "failure-models.md").read_text("utf-8")
    rows = set(re.findall(r"^\| `(\w+)` \|", text, re.M))
    places = (registry.COUNT_MODELS, registry.LAWS_OF_AGE, registry.CALENDAR_MODELS)
    classes = {place.rpartition(":")[2] for names in places for place in names.values()}
    assert classes <= rows
