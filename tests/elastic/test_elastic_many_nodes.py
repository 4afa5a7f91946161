"""Nodes in network namespaces, each with real ranks: one is killed whole, one is cut off.

Two nodes of two ranks train (`elastic_worker.py`), a third waits. The nodes share no loopback and
no memory; what a lost node held is on another node or nowhere.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import forked_python
import node_networks
from elastic_runs import WORKER, train
from forked_python import ForkedProcess
from node_networks import NodeNetwork

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")
if reason := node_networks.why_not():
    pytest.skip(reason, allow_module_level=True)

RANKS, STEPS, WAIT_S = 2, 40, 150.0
ETTR = [sys.executable, forked_python.__file__, "ettr"]


class Job:
    """The run's processes on each node, and what its ranks wrote."""

    def __init__(
        self, folder: Path, nodes: dict[str, NodeNetwork], node_timeout_s: int, **config: object
    ) -> None:
        folder.mkdir()
        self.folder, self.nodes, self.node_timeout_s = folder, nodes, node_timeout_s
        settings = {"steps": STEPS, "hold": 12} | config
        (folder / "config.json").write_text(json.dumps(settings))
        self.processes: dict[str, ForkedProcess] = {}

    def start(self, name: str, *options: str) -> None:
        node, first = self.nodes[name], next(iter(self.nodes.values()))
        words = ["--nnodes", "2", "--rdzv", f"{first.address}:29400", "--node-name", name]
        words += ["-n", str(RANKS), "--spares", "0"]
        words += ["--node-timeout", str(self.node_timeout_s), *options]
        command = [*ETTR, "elastic", *words, "--", sys.executable, str(WORKER)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (self.folder / f"{name}.txt").open("a") as output:
            self.processes[name] = node.start(
                [*command, str(self.folder / "config.json")], environment, output
            )

    def start_all(self) -> None:
        """Two nodes that train and one that waits: the order of joining decides."""
        may_start = {"a": lambda: True, "b": lambda: "supervises" in self.said("a")}
        may_start["c"] = lambda: "node b: room" in self.said("a")
        for name, ready in may_start.items():
            self.until(ready)
            self.start(name)

    def lose(self, name: str) -> None:
        self.nodes[name].kill()
        self.processes[name].wait(WAIT_S)

    def lines(self, event: str) -> list[dict]:
        texts = [path.read_text() for path in self.folder.glob("log-*.jsonl")]
        lines = [line for text in texts for line in text.splitlines(keepends=True)]
        parsed = [json.loads(line) for line in lines if line.endswith("\n")]
        return [line for line in parsed if line["event"] == event]

    def said(self, name: str) -> str:
        path = self.folder / f"{name}.txt"
        return path.read_text() if path.exists() else ""

    def until(self, holds: Callable[[], object]) -> None:
        end_s = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < end_s, {name: self.said(name) for name in self.nodes}
            time.sleep(0.05)

    def held(self) -> bool:
        """Whether every slot has done the step that all of them wait after."""
        return len({line["slot"] for line in self.lines("step") if line["step"] == 12}) == 4

    def spare_is_warm(self) -> bool:
        # a process of the spare node that has opened its log waits for a slot
        return len(list(self.folder.glob("log-*.jsonl"))) >= 6

    def go(self) -> None:
        (self.folder / "go").touch()

    def ends(self, name: str) -> int:
        return self.processes[name].wait(WAIT_S)

    def hashes(self) -> list[str]:
        paths = [self.folder / f"final-{slot}.json" for slot in range(4)]
        return [json.loads(path.read_text())["hash"] for path in paths]


@pytest.fixture(scope="module")
def nodes() -> Iterator[dict[str, NodeNetwork]]:
    with node_networks.cluster("abc", subnet=17) as made:
        yield made


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The same four ranks on one node."""
    return train(tmp_path_factory.mktemp("one-node") / "run", steps=STEPS, spares=0).final


@pytest.fixture
def new_job(nodes: dict[str, NodeNetwork], tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Makes a job; what a test that failed leaves running would be joined by the next one's.

    A node that is killed closes its connections; the time-out is long, so that one on a busy
    machine is not taken for dead.
    """
    jobs: list[Job] = []

    def make(name: str, node_timeout_s: int = 20, **config: object) -> Job:
        jobs.append(Job(tmp_path / name, nodes, node_timeout_s, **config))
        return jobs[-1]

    yield make
    for node in nodes.values():
        node.kill()
    for job in jobs:
        for process in job.processes.values():
            process.wait(WAIT_S)


def test_a_node_killed_whole_moves_to_the_spare_node_and_loses_no_step(
    nodes: dict[str, NodeNetwork], undisturbed: list[str], new_job: Callable[..., Job]
) -> None:
    job = new_job("killed")
    job.start_all()
    job.until(lambda: job.held() and job.spare_is_warm())
    before = {line["slot"]: line["pid"] for line in job.lines("recovered")}
    job.lose("b")
    job.go()
    assert (job.ends("a"), job.ends("c")) == (0, 0), (job.said("a"), job.said("c"))
    after = [line for line in job.lines("recovered") if line["generation"] == 2]
    assert {(line["source"], line["lost_steps"]) for line in after} == {("replica", 0)}
    assert {line["slot"]: line["pid"] == before[line["slot"]] for line in after} == {
        0: True,
        1: True,
        2: False,
        3: False,
    }
    assert "slot 2: w4 on c, slot 3: w5 on c" in job.said("a")
    assert job.hashes() == undisturbed


def test_a_node_that_is_cut_off_ends_its_ranks_before_they_are_replaced_and_comes_back(
    nodes: dict[str, NodeNetwork], undisturbed: list[str], new_job: Callable[..., Job]
) -> None:
    # the silence of the cut is waited for; a busy machine has been as silent for three seconds
    job = new_job("cut", node_timeout_s=12)
    job.start_all()
    job.until(lambda: job.held() and job.spare_is_warm())
    ranks = [pid for pid in nodes["b"].pids() if pid != job.processes["b"].pid]
    assert len(ranks) == RANKS
    nodes["b"].cut()
    try:
        seen_alive_s = before_s = time.time()
        while set(ranks) & set(nodes["b"].pids()):
            seen_alive_s, before_s = before_s, time.time()
            time.sleep(0.02)
        job.until(lambda: "cut off from the supervisor" in job.said("b"))
        job.until(lambda: len(job.lines("recovered")) >= 8)
        formed_s = [r["formed_s"] for r in job.lines("recovered") if r["generation"] == 2]
        assert min(formed_s) > seen_alive_s
    finally:
        nodes["b"].mend()
    job.until(lambda: job.said("b").count("joined the run") == 2)
    job.go()
    assert [job.ends(name) for name in "abc"] == [0, 0, 0]
    assert "cut off 1 times" in job.said("b")
    assert {r["source"] for r in job.lines("recovered") if r["generation"] == 2} == {"replica"}
    assert job.hashes() == undisturbed


def test_without_a_spare_node_the_ranks_wait_until_one_joins(
    nodes: dict[str, NodeNetwork], undisturbed: list[str], new_job: Callable[..., Job]
) -> None:
    job = new_job("late")
    job.start("a")
    job.start("b")
    job.until(job.held)
    job.lose("b")
    job.until(lambda: "waiting for one to join" in job.said("a"))
    job.start("c")
    job.go()
    assert (job.ends("a"), job.ends("c")) == (0, 0), (job.said("a"), job.said("c"))
    assert job.hashes() == undisturbed


def test_with_the_supervisors_node_the_run_ends_and_starts_again_from_storage(
    nodes: dict[str, NodeNetwork], undisturbed: list[str], new_job: Callable[..., Job]
) -> None:
    job = new_job("first", full_every=10)
    job.start("a")
    job.until(lambda: "supervises" in job.said("a"))
    job.start("b", "--node-wait", "5")
    job.until(job.held)
    job.lose("a")
    assert job.ends("b") == 1
    assert "start the command again on all nodes" in job.said("b")
    assert nodes["b"].pids() == []
    job.go()
    job.start("a")
    job.start("b")
    assert (job.ends("a"), job.ends("b")) == (0, 0), (job.said("a"), job.said("b"))
    resumed = job.lines("recovered")[-4:]
    assert {(line["source"], line["step"]) for line in job.lines("recovered")} == {
        ("start", 0),
        ("resume", 10),
    }, resumed
    assert job.hashes() == undisturbed
