"""A value beyond all bounds is refused in a sentence, before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program import ettr
from ettr.cli.quantities import LONGEST_TEXT

TRACE = Path(__file__).parents[1] / "samples" / "infinitehbd" / "trace.json"
HUGE = "9" * 20
PLAN = ("plan", "--gpus", "1024", "--failures-per-1000-node-days", "6.5")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("report", "{site}", "--json", "--above-gpus", HUGE), "--above-gpus 99999999999999999999"),
        (("mttf", "{site}", "--gpus-per-node", str(2**63 - 1)), "--gpus-per-node"),
        (("report", "{site}", "--json", "--gpus-per-node", HUGE), "--gpus-per-node"),
        (("runs", "{site}", "--interval", "1e15min"), "--interval 1e15min: give 366d at most"),
        (("failures", "{site}", "--list", "--interval", "9999d"), "--interval 9999d: give 366d at"),
        (
            ("compare", "{site}", "--previous", "--interval", "0"),
            "give a positive number of seconds",
        ),
        (("runs", "{site}", "--interval", "1e300min"), "--interval '1e300min': is too large"),
        (("runs", "{site}", "--run-id", r"(a+)+\1$"), "has no back-references"),
        (("runs", "{site}", "--run-id", "(a)" * 400), "1000 characters at most"),
        (
            ("runs", "{site}", "--run-id", "a\x1b[2Jb"),
            "leave out the control character '\\x1b'",
        ),
        (
            ("ingest", "{new}", TRACE, "--nodes", "400", "--start", "9999-12-31T00:00:00Z"),
            "is not in 1980 to 2200",
        ),
        (
            ("ingest", "{new}", TRACE, "--nodes", "400", "--start", "0001-01-01T00:00:00+14:00"),
            "is not in 1980 to 2200",
        ),
        (("ingest", "{new}", TRACE, "--nodes", "100000000"), "--nodes"),
        (("ingest", "{new}", TRACE, "--nodes", HUGE), "--nodes"),
        (
            ("ingest", "{new}", TRACE, "--cluster", "a\nb"),
            "--cluster 'a\\nb': leave out the control",
        ),
        ((*PLAN, "--restart", "1e300d"), "is too large; give one such as 5min"),
        ((*PLAN, "--restart", "1e-320s"), "is too small; give one such as 5min"),
        (("compare", "a=1/1e-308", "b=2/10"), "give 0, or a number from 1e-09 to 1e+15"),
        (("elastic", "--ranks", "1000000000", "--", "true"), "--ranks"),
    ],
)
def test_a_value_beyond_all_bounds(
    words: tuple[str | Path, ...], says: str, site: Path, tmp_path: Path
) -> None:
    named = {"site": site, "new": tmp_path / "new"}
    done = ettr(*(str(word).format(**named) if "{" in str(word) else word for word in words))
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("option", ["--source", "--nodes", "--no-such-option"])
def test_a_word_of_a_million_characters_is_not_repeated(option: str) -> None:
    done = ettr("ingest", "s", "f", f"{option}={'9' * 1_000_000}")
    assert (done.code, done.out) == (2, "")
    assert f"give {LONGEST_TEXT:,} at most" in done.err
    assert len(done.err) < 300


def test_a_long_script_of_a_command_that_is_run_is_not_ours() -> None:
    script = f"pass  # {'x' * LONGEST_TEXT}"
    done = ettr("chaos", "--at-most", "0", "--", "python3", "-c", script)
    assert done.code == 0


def test_what_the_parser_says_steers_no_terminal() -> None:
    done = ettr("plan", "--gpus", "1\x1b[2J", "--detail")
    assert done.code == 2
    assert "\x1b" not in done.err
