"""An option that can have no effect is refused, by name, with what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program import ettr
from ettr.cli.groups import Input, TypedOptions, needs

RATE = ("--gpus", "1024", "--failures-per-1000-node-days", "6.5")
COUNTS = ("--failures", "419", "--node-days", "110592")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("plan", *RATE, "--window", "1,2", "--above-gpus", "5", "--confidence", "0.5"),
            [
                "--window, --above-gpus: needs a STORE\n",
                "--confidence: needs a STORE or --failures with --node-days\n",
            ],
        ),
        # a value that is the default anyway was typed in vain too
        (("plan", *RATE, "--above-gpus", "128"), ["--above-gpus: needs a STORE\n"]),
        (("plan", *RATE, "--believe", "nvidia"), ["--believe: needs a STORE\n"]),
        (
            ("plan", "--gpus", "8", *COUNTS, "--taxonomy", "site.toml"),
            ["--taxonomy: needs a STORE\n"],
        ),
        (("plan", *RATE, "--network", "50GB/s"), ["--network: needs --state-bytes\n"]),
        (("plan", *RATE, "--replicas", "1"), ["--replicas: needs --state-bytes\n"]),
        (
            ("plan", *RATE, "--failure-shares", "node=1"),
            ["--failure-shares: needs --state-bytes or --html\n"],
        ),
        (
            ("project", *COUNTS, "--gpus", "4096", "--window", "600,300", "--spares", "2"),
            ["--window: needs a STORE\n", "--spares: needs --repair\n"],
        ),
        (
            ("compare", "a=1/10", "b=2/10", "--all-jobs", "--believe", "nvidia"),
            ["--all-jobs, --believe: needs a STORE\n"],
        ),
    ],
)
def test_what_typed_numbers_cannot_use_is_refused(words: tuple[str, ...], says: list[str]) -> None:
    done = ettr(*words)
    assert done.code == 2
    assert done.out == ""
    for text in says:
        assert text in done.err
    assert "leave them out, or give what they need" in done.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("report", "{site}", "--timezone", "UTC"), "--timezone: needs log files\n"),
        (
            ("report", "{site}", "--source", "slurm-sacct", "--nodes", "4"),
            "--source, --nodes: needs log files\n",
        ),
        (("project", "{site}", "--seen-gpus", "8"), "--seen-gpus: needs a failure rate typed in"),
        (("failures", "{site}", "--interval", "1h"), "--interval: needs --list\n"),
        (("compare", "{site}", "{site}", "--interval", "1h"), "--interval: needs --previous\n"),
        (
            ("compare", "{site}", "{site}", "--all-jobs", "--above-gpus", "8"),
            "--above-gpus: needs large jobs alone (no --all-jobs)\n",
        ),
    ],
)
def test_what_a_store_cannot_use_is_refused(words: tuple[str, ...], says: str, site: Path) -> None:
    done = ettr(*(word.format(site=site) for word in words))
    assert done.code == 2
    assert done.out == ""
    assert says in done.err


@pytest.mark.parametrize(
    ("metric", "option"),
    [
        ("status", "--window"),
        ("sizes", "--confidence"),
        ("status", "--run-id"),
        ("failures", "--restart"),
        ("runs", "--above-gpus"),
        ("nodes", "--above-gpus"),
        ("goodput", "--above-gpus"),
    ],
)
def test_a_metric_offers_only_options_that_its_numbers_depend_on(metric: str, option: str) -> None:
    assert option not in ettr(metric, "--help-all").out
    assert option in ettr("report", "--help-all").out


def test_options_of_one_need_stand_in_one_line() -> None:
    typed = TypedOptions({"--a": (needs(Input.STORE),), "--b": (needs(Input.STORE),)})
    with pytest.raises(Exception, match="--a, --b: needs a STORE"):
        typed.check({Input.STORE: False})
    typed.check({Input.STORE: True})


def test_an_input_that_a_command_never_takes_is_asked_of_no_option() -> None:
    TypedOptions({"--a": (needs(Input.STORE, Input.FILES),)}).check({Input.FILES: True})
    TypedOptions({"--a": (needs(Input.LARGE_JOBS),)}).check({Input.STORE: False})
