"""The commands of the how-to pages on planning run, and print what the pages say."""

import re
import shlex
from pathlib import Path

import pytest

from cli.program import ettr

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"


def commands(page: str) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (HOW_TO / page).read_text("utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "place", "says"),
    [
        ("plan-a-run.md", 0, ["3.79 [3.49, 4.11]", "3.09 h", "0.933 [0.929, 0.936]"]),
        ("plan-a-run.md", 1, ["7.02 min", "0.921", "6.91 min"]),
        ("plan-a-run.md", 2, ["in-memory copies", "cannot be used"]),
        ("plan-a-run.md", 3, ["within 54 d with 90 % the work needs", "spares"]),
        ("plan-a-run.md", 4, ["restart=1min", "gpus=8192"]),
        ("plan-a-run.md", 5, ["1,536 nodes", "USD"]),
        # 1,000 / 80 d of mean life
        ("plan-a-run.md", 6, ["12.5", "(simulated, two standard errors)", "the best"]),
        ("plan-a-run.md", 7, ["time without enough nodes (simulated)", "failures are noticed"]),
        ("plan-a-run.md", 8, ["failures per 1,000 node-days in use (simulated)"]),
        ("plan-a-run.md", 9, ["Planner page: planner.html"]),
        ("project-to-scale.md", 0, ["8 times the largest job seen"]),
        ("project-to-scale.md", 1, ["6.5"]),
        ("project-to-scale.md", 2, ["1.8 h [1.7 h, 1.92 h;", "Page: projection.html"]),
        ("compare-fleets.md", 0, ["3 [1.65, 5.70]", "0.0012"]),
        ("compare-fleets.md", 1, ["Funnel around"]),
        # 30 in 5,000 node-days are 6 per 1,000; 6 over RSC-1's published 6.50 is .923
        ("compare-fleets.md", 2, ["6 [4.32, 8.14]", "0.923"]),
    ],
)
def test_a_command_prints_what_the_page_says(
    page: str, place: int, says: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(commands(page)[place])
    done = ettr(*words[1:], "--detail")
    assert done.code == 0, done.err
    for text in says:
        assert text in done.out


def test_no_command_is_left_untested() -> None:
    pages = ("plan-a-run.md", "project-to-scale.md", "compare-fleets.md")
    assert [len(commands(page)) for page in pages] == [10, 3, 3]


def test_writes_of_45_s_miss_the_target() -> None:
    given = ("--gpus", "16384", "--failures", "419", "--node-days", "110592", "--target", "0.9")
    assert "is missed" in ettr("plan", *given, "--write", "45s", "--detail").out
