"""`ettr gate query` at the command line: verdicts, masks, refusals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.cli.main import examples

MODEL = """
import math

class Model:
    vocabulary = [b"a", b"b", b" ", b"1", b"secret", b""]
    end = 5
    def encode(self, text):
        return [b"ab 1".index(one) for one in text.encode()]
    def log_probabilities(self, prefixes):
        row = [0.25, 0.125, 0.125, 0.25, 0.125, 0.125]
        return [[math.log(one) for one in row] for _ in prefixes]

MODEL = Model()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ngrams.py").write_text(MODEL)
    return tmp_path


def query(folder: Path, *words: str):
    return ettr("gate", "query", "py:ngrams.py:MODEL", *words, folder=folder)


def test_json_has_the_bounds_the_matches_and_what_they_cost(folder: Path) -> None:
    made = query(folder, "[ab]1|secret", "--prefix", "ab", "--json", "--show").json
    assert made["mass"]["low"] == pytest.approx(0.25 * 0.375 + 0.125)
    assert made["mass"]["high"] == pytest.approx(0.25 * 0.375 + 0.125)
    assert [one["text"] for one in made["matches"]] == ["secret", "a1", "b1"]
    assert made["matches"][0]["probability"] == pytest.approx(0.125)
    assert made["model_calls"] == 3
    assert (made["gpus"], made["gpu_hours"], made["passed"]) == (0, 0, None)


def test_matches_are_masked_unless_asked_for(folder: Path) -> None:
    for words in ((), ("--json",), ("--csv",)):
        done = query(folder, "[a-z]{6}", *words)
        assert done.code == 0
        assert "secret" not in (done.out + done.err).replace("may be secrets", "")
    shown = query(folder, "[a-z]{6}", "--show")
    assert "'secret'" in shown.out


def test_a_gate_passes_only_where_the_probability_cannot_exceed_it(folder: Path) -> None:
    passed = query(folder, "secret", "--most", "0.126")
    assert (passed.code, "Gate: passed" in passed.out) == (0, True)
    exceeded = query(folder, "secret", "--most", "0.12")
    assert (exceeded.code, "Gate: not passed" in exceeded.out) == (1, True)
    words = ("[ab]{3}1", "--most", "0.0133", "--calls", "1", "--run", "r7", "--step", "40")
    undecided = query(folder, *words, "--json")
    assert (undecided.code, undecided.json["passed"]) == (1, None)
    assert (undecided.json["run"], undecided.json["step"]) == ("r7", 40)


def test_samples_come_with_an_interval(folder: Path) -> None:
    made = query(folder, "[ab]1", "--samples", "400", "--json").json
    assert made["estimate"] == pytest.approx(0.375 * 0.25)
    assert made["mass"]["low"] <= 0.375 * 0.25 <= made["mass"]["high"]
    assert (made["walks"], made["matched"], made["cut"]) == (400, 400, 0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("^a",), "anchor"),
        (("a(?=b)",), "lookaround"),
        (("[a",), "unterminated"),
        (("a" * 1001,), "1,000 at most"),
        (("a", "--most", "2"), "from 0 to 1"),
        (("a", "--most", "nan"), "from 0 to 1"),
        (("a", "--calls", "0"), "--calls"),
        (("a", "--prefix", "xyz"), "its encode ended with ValueError"),
    ],
)
def test_wrong_use_is_refused_in_a_sentence(folder: Path, words: list[str], says: str) -> None:
    done = query(folder, *words)
    assert done.code in {1, 2}
    assert says in done.err
    assert "Traceback" not in done.err


def test_the_example_of_the_help_runs(folder: Path) -> None:
    own = next(line for line in examples("gate query") if "ngrams.py" in line)
    import shlex

    assert ettr(*shlex.split(own)[1:], folder=folder).code == 0


def test_gate_alone_names_its_commands() -> None:
    done = ettr("gate")
    assert done.code == 2
    assert "gate query" in done.err


@pytest.mark.slow
def test_ctrl_c_prints_the_bounds(folder: Path) -> None:
    (folder / "ngrams.py").write_text(
        MODEL.replace("row = [", "import time, sys; time.sleep(0.2); row = [")
        + "\nimport sys; print('ready', file=sys.stderr, flush=True)\n"
    )
    words = [sys.executable, "-c", "from ettr.cli.main import main; main()", "gate", "query"]
    with subprocess.Popen(
        [*words, "py:ngrams.py:MODEL", "[ab1 ]*secret", "--json", "--batch", "1"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()  # where interrupts are ignored, as below a shell's &
    assert process.returncode == 130, err
    made = json.loads(out)
    assert made["ended"] == "interrupted"
    assert made["mass"]["low"] < 1 / 3 < made["mass"]["high"]
    assert "Traceback" not in err
