"""`ettr plan --assume`: a user's own value in place of what a scheme's source gives."""

import json
from typing import Any

import pytest

from cli.program import ettr
from ettr.plan.assumed import inputs_of, kind_of
from ettr.plan.schemes import SCHEMES

JOB = (
    *("--gpus", "4096", "--failures-per-1000-node-days", "6.5", "--state-bytes", "5TB"),
    *("--step", "10s", "--bandwidth", "200GB/s", "--replicas", "16", "--expert-share", "0.5"),
)
OTHER = {"a time, such as 40s": "77s", "yes or no": "no", "a whole number": "3", "a number": "0.4"}


def plan(*given: str) -> dict[str, Any]:
    done = ettr("plan", *JOB, *given, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def scheme(found: dict[str, Any], name: str) -> dict[str, Any]:
    (one,) = (one for one in found["schemes"] if one["name"] == name)
    return dict(one)


@pytest.fixture(scope="module")
def as_assumed() -> dict[str, Any]:
    return plan()


def test_every_input_of_every_scheme_can_be_given() -> None:
    """All at once; what was given is no assumption any more."""
    names = inputs_of()
    assert len(names) == sum(len(vars(one)) for one in SCHEMES)
    found = plan(*(f"--assume={name}={OTHER[kind_of(one)]}" for name, one in names.items()))
    for one in names.values():
        assert scheme(found, one.scheme)["inputs"][one.field] in (77.0, False, 3, 0.4)
    assert not [one for one in found["standing"]["assumptions"] if one["scheme"] is not None]


def test_a_slower_swap_costs_its_time(as_assumed: dict[str, Any]) -> None:
    slower = plan("--assume", "hot-swap.swap=100s")
    before, after = (scheme(one, "hot swap")["ettr"]["estimate"] for one in (as_assumed, slower))
    per_s = 512 * 6.5e-3 / 86400
    assert before - after == pytest.approx(60 * per_s, rel=0.05)
    others = [
        {one["name"]: one["ettr"] for one in found["schemes"] if one["name"] != "hot swap"}
        for found in (as_assumed, slower)
    ]
    assert others[0] == others[1]


def test_the_plan_names_inputs_as_they_are_typed(as_assumed: dict[str, Any]) -> None:
    labels = {
        one["label"] for one in as_assumed["standing"]["assumptions"] if one["scheme"] is not None
    }
    assert labels
    for label in labels:
        option, name = label.split(" ")
        assert option == "--assume"
        assert name in inputs_of()


@pytest.mark.slow
def test_a_second_plan_may_differ_in_one() -> None:
    both = plan("--versus", "assume=hot-swap.swap=100s")
    alone = plan("--assume", "hot-swap.swap=100s")
    assert both["versus"]["plan"]["schemes"] == alone["schemes"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hot-swap", "with one of asynchronous.slowdown"),
        ("hot-swap.swop=3s", "with one of asynchronous.slowdown"),
        ("hot-swap.swap=3", "give a number with its unit"),
        ("in-memory-copies.n-copies=0", "give 1 or more"),
        ("in-memory-copies.n-copies=2.5", "give a whole number"),
        ("in-memory-copies.spans-racks=maybe", "give yes or no"),
        ("in-memory-erasure-code.group-nodes=1", "give 2 or more"),
        ("partial-experts.saved-share=1.5", "give from 0 to 1"),
        ("partial-recovery.slowdown=nan", "give 0 or more"),
        ("partial-recovery.slowdown=inf", "give 0 or more"),
    ],
)
def test_what_cannot_be_is_refused(text: str, says: str) -> None:
    done = ettr("plan", *JOB, "--assume", text)
    assert done.code == 2
    assert says in " ".join(done.err.split())
