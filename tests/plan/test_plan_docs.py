"""The example in the explanation runs, and its numbers are what the forms give."""

import re
from pathlib import Path

from ettr.plan.intervals import second_form_ettr
from ettr.plan.renewal import exact_ettr
from ettr.plan.run import PlannedRun, RunShape, nodes_of
from printed_digits import printed

TEXT = (Path(__file__).parents[2] / "docs" / "explanation" / "ettr-models.md").read_text()


def test_what_the_text_says_of_both_forms() -> None:
    said = re.findall(
        r"([\d.]+) against ([\d.]+) at ([\d,]+)\s+GPUs and (?:an interval of )?(\d+) min", TEXT
    )
    assert len(said) == 2
    for paper, exact, n_gpus, interval_min in said:
        run = RunShape(nodes_of(int(n_gpus.replace(",", ""))), write_s=0.0, restart_s=300.0).at(
            failures_per_node_day=6.5e-3, interval_s=float(interval_min) * 60
        )
        assert second_form_ettr(run) == printed(paper)
        assert exact_ettr(run) == printed(exact)


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)  # noqa: S102 our own documentation
    assert isinstance(names["run"], PlannedRun)
