"""Every registered failure model does what a failure model must."""

from __future__ import annotations

import re

import pytest

from cli.program import ettr
from ettr.models.base import FailureModel
from ettr.models.data import Lifetimes
from ettr.models.registry import (
    COUNT_MODELS,
    LAWS_OF_AGE,
    MODELS,
    SIMPLEST,
    count_model,
    count_models,
    law_of_age,
    lifetime_models,
)
from models.conformance import check_counts, check_law_of_age, check_lifetimes


@pytest.mark.parametrize("name", COUNT_MODELS)
def test_a_model_of_counts_conforms(name: str) -> None:
    check_counts(count_model(name))


@pytest.mark.parametrize("model", lifetime_models(), ids=lambda model: model.name)
def test_a_model_of_lifetimes_conforms(model: FailureModel[Lifetimes]) -> None:
    check_lifetimes(model)


@pytest.mark.parametrize("name", LAWS_OF_AGE)
def test_a_law_of_age_conforms(name: str) -> None:
    check_law_of_age(law_of_age(name))


def test_names_are_those_of_the_command_line() -> None:
    assert len(set(MODELS)) == len(MODELS)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in MODELS)
    help_text = " ".join(ettr("project", "--help-all").out.split())
    assert [name for name in MODELS if name not in help_text] == []


def test_both_kinds_begin_with_the_simplest_and_have_names_of_their_own() -> None:
    counts, lifetimes = count_models(), lifetime_models()
    assert counts[0].name == lifetimes[0].name == count_model(SIMPLEST).name
    for models in (counts, lifetimes):
        assert len({model.name for model in models}) == len(models)
