"""SuperBench's rule file, next to results, judges their metrics."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

from ettr.sources.registry import named
from source_samples import SAMPLES, read_all, rows_of

RULES = r"""# made after SuperBench's documentation of rule files; no node was measured
version: v0.12
superbench:
  var:
    default_variance_rule: &slower
      rules:
        name: variance
        condition: -0.05
  benchmarks:
    gemm-flops:
      metrics:
        gemm-flops/fp16:\d+:
          criteria: 310000
          <<: *slower
    ib-loopback:
      metrics:
        ib-loopback/ib_write_\d+:\d+:
          criteria: 23900
          rules:
            name: variance
            condition: -0.05
    mem-bw:
      metrics:
        mem-bw/return_code:\d+:
          criteria: 0
          rules:
            name: value
"""


def test_rules_next_to_the_results_judge_their_metrics(tmp_path: Path) -> None:
    results = tmp_path / "results-summary.jsonl"
    shutil.copy(SAMPLES / "superbench" / results.name, results)
    (tmp_path / "rules.yaml").write_text(RULES)
    batches = read_all(named("superbench"), results)
    events = rows_of(batches, "events")
    broken = {
        (row["node"], row["check"], row["message"]) for row in events if row["severity"] != "ok"
    }
    # 280000 is 9.7 % below 310000, 23890 is .04 % below 23900; the return code is not 0
    assert broken == {
        ("sb-2", "superbench gemm-flops", "gemm-flops/fp16:0=280000"),
        ("sb-2", "superbench mem-bw", "mem-bw/return_code:0=2"),
    }
    assert any("3 rules of rules.yaml" in note for note in batches[-1].notes)


def test_a_fleet_in_the_form_of_the_published_baseline_gives_its_planted_nodes(
    tmp_path: Path,
) -> None:
    """As many nodes as SuperBench published results of, made by a seed; no node was measured."""
    rng = random.Random(20)
    slow = set(rng.sample(range(1939), 10))
    lines = []
    for place in range(1939):
        cards = {f"gemm-flops/fp16:{card}": 310_000 * rng.gauss(1, 0.005) for card in range(8)}
        if place in slow:
            cards[f"gemm-flops/fp16:{place % 8}"] *= 0.9
        cards |= {f"ib-loopback/ib_write_8388608:{card}": 23_900 for card in range(8)}
        lines.append(json.dumps({"node": f"node-{place:04}", **cards, "mem-bw/return_code:0": 0}))
    results = tmp_path / "results-summary.jsonl"
    results.write_text("\n".join(lines))
    (tmp_path / "rules.yaml").write_text(RULES)
    events = rows_of(read_all(named("superbench"), results), "events")
    assert len(events) == 3 * 1939
    broken = {row["node"] for row in events if row["severity"] != "ok"}
    assert broken == {f"node-{place:04}" for place in slow}
