"""The example in the explanation runs, and its table is what the forms give."""

import re
from pathlib import Path

from ettr.plan.closed_forms import second_form_ettr
from ettr.plan.renewal import exact_ettr
from ettr.plan.run import PlannedRun, nodes_of
from printed_digits import printed

TEXT = (Path(__file__).parents[2] / "docs" / "explanation" / "ettr-models.md").read_text()


def test_the_table_of_forms() -> None:
    rows = re.findall(r"\| ([\d,]+) \| (\d+) min \| ([\d.]+) \| ([\d.]+) \| [\d.]+ \|", TEXT)
    assert len(rows) == 5
    for n_gpus, interval_min, paper, exact in rows:
        n_nodes = nodes_of(int(n_gpus.replace(",", "")))
        run = PlannedRun(
            failures_per_node_day=6.5e-3,
            n_nodes=n_nodes,
            interval_s=float(interval_min) * 60,
            write_s=0.0,
        )
        assert second_form_ettr(run) == printed(paper)
        assert exact_ettr(run) == printed(exact)


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)  # noqa: S102 our own documentation
    assert isinstance(names["run"], PlannedRun)
