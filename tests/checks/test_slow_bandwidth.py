"""Nodes whose links are slow, planted in tables of nccl-tests, in `ettr slow`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cli.program import ettr


def table(nodes: list[str], busbw: float) -> str:
    head = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5\n"
    ranks = "".join(
        f"#  Rank {rank:2d} Group  0 Pid   {rank} on {node} device  0 [0000:04:00] NVIDIA H100\n"
        for rank, node in enumerate(nodes)
    )
    half = f"47535 180.71 {busbw:.2f} 0"
    row = f"  8589934592 2147483648 float sum -1 {half} {half}\n"
    return head + ranks + row


def planted(folder: Path, slow: float) -> Path:
    """80 tests of four of 16 nodes each; what holds n7 has `slow` of the bandwidth."""
    rng = np.random.default_rng(5)
    names = [f"n{n}" for n in range(16)]
    text = "build/all_reduce_perf -b 8 -e 8G -f 2 -g 1\n"
    for _ in range(80):
        nodes = rng.choice(names, 4, replace=False).tolist()
        speed = 340.0 * rng.lognormal(0, 0.01) * (slow if "n7" in nodes else 1.0)
        text += table(nodes, speed)
    (folder / "tests.txt").write_text(text)
    done = ettr("ingest", folder / "site", folder / "tests.txt", "--cluster", "c")
    assert done.code == 0, done.err
    return folder / "site"


def test_a_node_with_a_slow_link_is_claimed_and_no_other(tmp_path: Path) -> None:
    site = planted(tmp_path, 0.5)
    found = ettr("slow", site, "--json").json["by_tests"]
    (claimed,) = [one for one in found["candidates"] if one["claimed"]]
    assert claimed["nodes"] == ["n7"]
    # half the bandwidth is twice the time
    assert claimed["slowdown"]["low"] <= 1.0 <= claimed["slowdown"]["high"]
    assert "1 node is claimed to be slow in 80 tests" in ettr("slow", site).out


def test_equal_nodes_are_not_claimed(tmp_path: Path) -> None:
    site = planted(tmp_path, 1.0)
    found = ettr("slow", site, "--json").json["by_tests"]
    assert not any(one["claimed"] for one in found["candidates"])
    assert "No node is claimed" in ettr("slow", site).out
