"""Nodes that logs call by a host name with a domain, or in capitals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.facts.naming import joined_names

JOBS = """JobID|JobName|User|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES
1|a|u|FAILED|1:0|2026-03-01T06:00:00|2026-03-01T06:05:00|2026-03-01T12:00:00|21300|1|gpu-a01|gres/gpu=8
2|b|u|NODE_FAIL|1:0|2026-03-01T06:00:00|2026-03-01T06:05:00|2026-03-01T13:00:00|24900|1|GPU-A02|gres/gpu=8
3|c|u|NODE_FAIL|1:0|2026-03-01T06:00:00|2026-03-01T06:05:00|2026-03-01T14:00:00|28500|1|cloud-7|gres/gpu=8
"""
LOG = """2026-03-01T11:59:30+00:00 gpu-a01.cluster.example kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.
2026-03-01T12:59:30+00:00 gpu-a02 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.
2026-03-01T13:59:30+00:00 ip-10-0-0-7.internal kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.
"""  # noqa: E501
INVENTORY = """NodeName=cloud-7 Arch=x86_64 CPUTot=8 Gres=gpu:8
   NodeAddr=10.0.0.7 NodeHostName=ip-10-0-0-7
   State=IDLE RealMemory=1000
"""


def known(*nodes: str) -> list[tuple[str, str]]:
    return [("c", node) for node in nodes]


def test_a_host_name_that_is_unique_is_joined() -> None:
    logged = known("gpu-a01.x.org", "GPU-A02", "gpu-a03", "other.x.org")
    sure, unsure = joined_names(known("gpu-a01", "gpu-a02", "gpu-a03"), logged, [])
    assert sure == {("c", "gpu-a01.x.org"): "gpu-a01", ("c", "GPU-A02"): "gpu-a02"}
    assert unsure == {}


def test_what_may_be_of_several_nodes_stays_apart() -> None:
    """One short name of nodes in two domains; two domains of a node with a short name."""
    sure, unsure = joined_names(known("n1.east.org", "n1.west.org"), known("n1"), [])
    assert (sure, unsure) == ({}, {("c", "n1"): ("n1.east.org", "n1.west.org")})
    sure, unsure = joined_names(known("n1"), known("n1.east.org", "n1.west.org"), [])
    assert sure == {}
    assert set(unsure) == set(known("n1.east.org", "n1.west.org"))


def test_addresses_are_no_host_names() -> None:
    assert joined_names(known("10.0.0.1"), known("10.0.0.2"), []) == ({}, {})


def test_another_cluster_with_that_host_name_is_none_of_ours() -> None:
    assert joined_names(known("n1"), [("d", "n1.x.org")], []) == ({}, {})


def test_an_inventory_decides_between_domains() -> None:
    stated = [("c", "n1", "n1.west.org")]
    sure, unsure = joined_names(known("n1"), known("n1.east.org", "n1.west.org"), stated)
    assert sure == {("c", "n1.west.org"): "n1"}
    assert set(unsure) == set(known("n1.east.org"))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_every_command_has_the_errors_of_a_node_under_its_scheduler_s_name(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    names = ("sacct.psv", "kern.log", "nodes.txt")
    for name, text in zip(names, (JOBS, LOG, INVENTORY), strict=True):
        (tmp_path / name).write_text(text)
    store = str(tmp_path / "st")
    logs = [str(tmp_path / names[place]) for place in order]
    done = ettr("ingest", store, *logs, "--timezone", "UTC", "--cluster", "c")
    assert done.code == 0, done.err

    def said(*words: str) -> str:
        done = ettr(*words)
        assert done.code == 0, done.err
        return done.out

    failures = json.loads(said("failures", store, "--list", "--json"))["failures"]
    assert {one["job_id"]: one["node"] for one in failures} == {
        "1": "gpu-a01",
        "2": "GPU-A02",
        "3": "cloud-7",
    }
    assert {one["symptom"] for one in failures} == {"gpu-unavailable"}
    for job in "123":
        text = said("explain", store, job)
        assert "gpu-unavailable" in text
        assert "No kernel message" not in text
    assert "gpu-unavailable" in said("node", store, "gpu-a01")
    for name in ("gpu-a01.cluster.example", "c/gpu-a01.cluster.example"):
        assert said("node", store, name) == said("node", store, "gpu-a01")
    quality = " ".join(said("quality", store, "--detail").split())
    assert "Logs call 3 nodes by another name than the scheduler, such as" in quality
    nodes = json.loads(said("nodes", store, "--json"))
    assert "cluster.example" not in json.dumps(nodes)
