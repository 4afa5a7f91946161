"""A training job on nodes of a real Slurm: one node loses its power, the job goes on.

Three nodes in one job, two of which train; the third is a spare. slurmd, steps and ranks of a
training node are killed at once.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import elastic_runs
import forked_python
from elastic_runs import WORKER
from slurm.cluster import SlurmCluster, slurm_cluster, wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.timeout(1200),  # a cluster is started first
]
pytest.importorskip("torch")

ETTR = f"{sys.executable} {forked_python.__file__} ettr"
STEPS, HELD_AFTER, WAIT_S = 30, 12, 240.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    # a folder that MariaDB's own user may enter, which those of pytest are not
    with tempfile.TemporaryDirectory(prefix="site-") as folder:
        Path(folder).chmod(0o755)
        with slurm_cluster(
            Path(folder), nodes=("node1", "node2", "node3"), base_port=18500
        ) as made:
            yield made


def train(cluster: SlurmCluster, folder: Path) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"steps": STEPS, "hold": HELD_AFTER}))
    # a killed node closes its connections; one on a busy machine is not to be taken for dead
    elastic = f"{ETTR} elastic --nnodes 2 -n 2 --spares 0 --node-timeout 20"
    command = f"{elastic} -- {sys.executable} {WORKER} {folder}/config.json"
    step = f"srun --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 {command}"
    return cluster.submit("train", "-N3", "--no-kill", "--no-requeue", wrap=step)


def lines(folder: Path, event: str) -> list[dict]:
    """With the process that wrote each, known by its node and pid."""
    found = []
    for path in folder.glob("log-*.jsonl"):
        whole = [line for line in path.read_text().splitlines(keepends=True) if line[-1] == "\n"]
        found += [{**json.loads(line), "process": path.stem} for line in whole]
    return [line for line in found if line["event"] == event]


def wait(cluster: SlurmCluster, job_id: str, holds: Callable[[], bool], what: str) -> None:
    try:
        wait_until(holds, WAIT_S, what)
    except Exception as error:
        output = cluster.run / "jobs" / f"train-{job_id}.out"
        raise AssertionError(output.read_text() if output.exists() else "no output") from error


def hashes(folder: Path) -> list[str]:
    paths = [folder / f"final-{slot}.json" for slot in range(4)]
    return [json.loads(path.read_text())["hash"] for path in paths]


def test_a_node_without_power_is_replaced_and_the_job_ends_as_if_undisturbed(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "disturbed"
    job_id = train(cluster, folder)
    undisturbed = elastic_runs.train(tmp_path / "undisturbed", steps=STEPS, spares=0)

    def held() -> bool:
        steps = [line for line in lines(folder, "step") if line["step"] == HELD_AFTER]
        warm = len(list(folder.glob("log-*.jsonl"))) >= 6
        return warm and len({line["slot"] for line in steps}) == 4

    wait(cluster, job_id, held, "the job to stand")
    recovered = lines(folder, "recovered")
    generation = max(line["generation"] for line in recovered)  # a slow node costs one more
    before = {
        line["slot"]: line["process"] for line in recovered if line["generation"] == generation
    }
    # the last of the two that train: the first node supervises
    cluster.kill_node(max(process.split("-")[1] for process in before.values()))
    (folder / "go").touch()
    wait(cluster, job_id, lambda: len(list(folder.glob("final-*.json"))) == 4, "the end")
    after = [line for line in lines(folder, "recovered") if line["generation"] > generation]
    assert {(line["source"], line["lost_steps"]) for line in after} == {("replica", 0)}
    assert sum(line["process"] == before[line["slot"]] for line in after) == 2  # survivors live
    assert hashes(folder) == undisturbed.final
