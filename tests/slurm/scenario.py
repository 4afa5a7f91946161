"""Jobs that end in every way a Slurm job can, nodes that die and are drained: what happened, told.

Run on a real cluster; returns the story as it was observed, for the report to be held against.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from slurm.cluster import SlurmCluster, wait_until
from slurm.train_job import HELD_AT

XID_79 = (
    "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)
XID_94 = "NVRM: Xid (PCI:0000:9d:00): 94, pid=4242, name=python, Contained: SM (0x1). RST: No"
DRAIN_REASON = "NHC: check_dcgm: GPU 3 XID 79 fallen off the bus"
MAINTENANCE_REASON = "scheduled maintenance: firmware update"
# an attempt that lasts until it is ended, and one after it that is short
ENDED_AND_REQUEUED = 'if [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then sleep 600; fi; sleep 1'
HOSTILE_NAME = "</script><script>alert(1)</script>=cmd' /C calc'!A0 &amp;"


@dataclass
class Story:
    """What was done to the cluster, and how each job must have ended."""

    ends: dict[str, list[str]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    kernel_lines: list[tuple[datetime, str, str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    # a dump of the accounting from the middle of the day, while jobs ran
    half: str = ""

    def expect(self, name: str, job_id: str, *states: str) -> str:
        """Note how the attempts of a job end, in order."""
        self.ids[name] = job_id
        self.ends[name] = list(states)
        return job_id

    def kernel_says(self, node: str, text: str) -> None:
        """Note a line of a node's kernel log, now."""
        self.kernel_lines.append((datetime.now(UTC), node, text))


def play(cluster: SlurmCluster) -> Story:
    """Run the whole scenario; two to three minutes."""
    story = Story()
    timeout = _small_jobs(cluster, story)
    _operator_requeue_and_drain(cluster, story)
    _preemption(cluster, story)
    _node_failures(cluster, story)
    _more_node_failures(cluster, story)
    cluster.wait_for_jobs([timeout])
    # accounting lags the controller
    wait_until(lambda: _is_accounted_for(cluster, story), 240, "the end of all in accounting")
    return story


def _is_accounted_for(cluster: SlurmCluster, story: Story) -> bool:
    """Whether every attempt is in the accounting with its end, and every outage of a node too."""
    attempts = cluster.command(*SACCT, "-X", "-n", "--format=JobID,End").split()
    # a heterogeneous job is accounted for part by part: 30+0, 30+1
    ended = [re.split(r"[|+]", line)[0] for line in attempts if not line.endswith("|Unknown")]
    outages = [
        line
        for line in cluster.command(*EVENTS, "-n", "Format=NodeName,End").split()
        if not line.startswith("|")  # the cluster's own
    ]
    return (
        len(ended) == len(attempts)
        and all(ended.count(story.ids[name]) >= len(ends) for name, ends in story.ends.items())
        and len(outages) >= N_OUTAGES
        and not any(line.endswith("|Unknown") for line in outages)
    )


def _small_jobs(cluster: SlurmCluster, story: Story) -> str:
    submit, expect = cluster.submit, story.expect
    # away from the nodes whose GPUs will fall off: within minutes of that, a failed job on them
    # counts as failed by it, as it should
    away = "--exclude=node2,node5"
    gpu = "--gres=gpu:1"
    comment = '--comment={"run": "smoke"}'
    jobs = [
        expect(
            "ok",
            submit("ok", "-N2", "--gres=gpu:8", comment, wrap="echo start\nsleep 1"),
            "COMPLETED",
        ),
        expect(
            "fail", submit("fail", away, "--gres=gpu:4", "--uid=games", wrap="exit 3"), "FAILED"
        ),
        expect("segv", submit("segv", away, gpu, "--uid=games", wrap="kill -SEGV $$"), "FAILED"),
        expect("hostile", submit(HOSTILE_NAME, away, gpu, wrap="exit 1"), "FAILED"),
        expect(
            "requeue_exit",
            submit(
                "requeue_exit", away, gpu, wrap='[ "${SLURM_RESTART_COUNT:-0}" -ge 1 ] || exit 99'
            ),
            "REQUEUED",
            "COMPLETED",
        ),
    ]
    array = submit(
        "array", away, "-a", "0-3%2", gpu, wrap="sleep 1; exit $((SLURM_ARRAY_TASK_ID==2))"
    )
    for task in range(4):
        expect(f"array_{task}", f"{array}_{task}", "FAILED" if task == 2 else "COMPLETED")
    cancelled = expect("cancel", submit("cancel", gpu, wrap="sleep 600"), "CANCELLED")
    never_ran = expect(
        "cancel_pending",
        submit("cancel_pending", "-N6", "--exclusive", "--nice=10000", wrap="sleep 1"),
        "CANCELLED",
    )
    if cluster.cgroup:
        eat = "python3 -c 'b = [bytearray(1 << 20) for _ in range(2000)]'"
        jobs.append(
            expect("oom", submit("oom", away, gpu, "--mem=100M", wrap=eat), "OUT_OF_MEMORY")
        )
    else:
        story.left_out.append("OUT_OF_MEMORY: this machine has no cgroup v1 memory controller")
    timeout = expect(
        "timeout",
        submit("timeout", gpu, "--time=1", "--uid=www-data", "-w", "node6", wrap="sleep 600"),
        "TIMEOUT",
    )
    cluster.wait_for_state(cancelled, "RUNNING")
    cluster.command("scancel", cancelled, never_ran)
    cluster.wait_for_jobs([*jobs, array])
    return timeout


def _operator_requeue_and_drain(cluster: SlurmCluster, story: Story) -> None:
    requeued = story.expect(
        "op_requeue",
        cluster.submit("op_requeue", "--gres=gpu:1", wrap=ENDED_AND_REQUEUED),
        "REQUEUED",
        "COMPLETED",
    )
    cluster.wait_for_state(requeued, "RUNNING")
    cluster.command("scontrol", "requeue", requeued)
    story.kernel_says("node5", XID_79)
    cluster.update_node("node5", "DRAIN", DRAIN_REASON)
    time.sleep(2)
    cluster.update_node("node5", "RESUME")
    cluster.wait_for_jobs([requeued])


def _preemption(cluster: SlurmCluster, story: Story) -> None:
    shape = ("-N4", "-w", "node[1-4]", "--exclusive", "--gres=gpu:8")
    low = story.expect(
        "scavenger",
        cluster.submit(
            "scavenger", *shape, "--qos=scavenger", "--requeue", wrap=ENDED_AND_REQUEUED
        ),
        "PREEMPTED",
        "COMPLETED",
    )
    cluster.wait_for_state(low, "RUNNING")
    time.sleep(2)
    high = story.expect(
        "high", cluster.submit("high", *shape, "--qos=high", wrap="sleep 2"), "COMPLETED"
    )
    cluster.wait_for_jobs([high, low])


def _node_failures(cluster: SlurmCluster, story: Story) -> None:
    requeue = story.expect(
        "nodefail_requeue",
        cluster.submit(
            "nodefail_requeue",
            *("-N2", "-w", "node1,node2", "--gres=gpu:8", "--requeue"),
            '--comment={"run": "llm-7b"}',
            wrap="$TRAIN .",
        ),
        "NODE_FAIL",
        "COMPLETED",
    )
    lost = story.expect(
        "nodefail_lost",
        cluster.submit(
            "nodefail_lost",
            *("-N2", "-w", "node3,node4", "--gres=gpu:8", "--no-requeue"),
            wrap="sleep 600",
        ),
        "NODE_FAIL",
    )
    drained = story.expect(
        "on_drain",
        cluster.submit(
            *("on_drain", "-w", "node5", "--gres=gpu:8"),
            wrap="until [ -e drained ]; do sleep 0.1; done",
        ),
        "COMPLETED",
    )
    for job in (requeue, lost, drained):
        cluster.wait_for_state(job, "RUNNING")
    story.half = _sacct(cluster)
    told = cluster.run / "jobs" / "progress.jsonl"
    last = f'"event":"step","step":{HELD_AT},'
    wait_until(lambda: told.exists() and last in told.read_text(), 240, f"step {HELD_AT}")
    story.kernel_says("node5", XID_94)
    cluster.update_node("node5", "DRAIN", "XID 94 contained ECC")
    (cluster.run / "jobs" / "drained").touch()
    dead = ("node2", "node4")
    for node in dead:
        cluster.kill_node(node)
    wait_until(
        lambda: all("down" in cluster.node_state(node) for node in dead), 300, "dead nodes noticed"
    )
    # the last words of node2's GPU, as its kernel would have logged them; node4 dies in silence
    story.kernel_says("node2", XID_79)
    for node in dead:
        cluster.start_node(node)
    cluster.update_node("node5", "RESUME")
    cluster.wait_for_jobs([requeue, lost, drained])


def _more_node_failures(cluster: SlurmCluster, story: Story) -> None:
    """One node takes a part of a heterogeneous job along, one two jobs; one is taken down."""
    first = story.expect("chain_1", cluster.submit("chain", wrap="sleep 1"), "COMPLETED")
    after = cluster.submit("chain", f"--dependency=afterany:{first}", wrap="sleep 1")
    story.expect("chain_2", after, "COMPLETED")
    parts = [
        ("-N1", "-w", "node1", "--gres=gpu:1", "--no-requeue"),
        ("-N1", "-w", "node6", "--gres=gpu:4", "--no-requeue"),
    ]
    het = story.expect(
        "het_lost",
        cluster.submit_heterogeneous("het_lost", *parts, script="sleep 600"),
        "NODE_FAIL",
    )
    half_a_node = ("--gres=gpu:4", "--mem=1000")  # without a limit a job has all memory
    twins = [
        story.expect(
            name,
            cluster.submit(name, "-w", "node3", *half_a_node, "--no-requeue", wrap="sleep 600"),
            "NODE_FAIL",
        )
        for name in ("twin_a", "twin_b")
    ]
    maintained = story.expect(
        "maintained",
        cluster.submit(
            "maintained", "-w", "node5", "--gres=gpu:8", "--no-requeue", wrap="sleep 600"
        ),
        "NODE_FAIL",
    )
    for job in (het, *twins, maintained):
        cluster.wait_for_state(job, "RUNNING")
    cluster.update_node("node5", "DOWN", MAINTENANCE_REASON)
    dead = ("node3", "node6")
    for node in dead:
        cluster.kill_node(node)
    wait_until(
        lambda: all("down" in cluster.node_state(node) for node in dead), 300, "dead nodes noticed"
    )
    for node in dead:
        cluster.start_node(node)
    cluster.update_node("node5", "RESUME")
    cluster.wait_for_jobs([het, *twins, maintained, first, after])


def _sacct(cluster: SlurmCluster) -> str:
    return cluster.command(*SACCT, f"--format={','.join(SACCT_FIELDS)}")


def capture(cluster: SlurmCluster, story: Story, folder: Path) -> None:
    """Write what a site would dump after such a day."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {
        "sacct.psv": _sacct(cluster),
        "events.psv": cluster.command(*EVENTS, f"Format={EVENT_FIELDS}"),
        # the host's kernel is no part of the story
        "nodes.txt": re.sub(r"OS=.*", "OS=Linux", cluster.command("scontrol", "show", "node")),
        "slurmctld.log": (cluster.run / "log" / "slurmctld.log").read_text(),
        "kernel.log": "".join(
            f"{moment:%Y-%m-%dT%H:%M:%S.%f+00:00} {node} kernel: {text}\n"
            for moment, node, text in story.kernel_lines
        ),
    }
    written["progress.jsonl"] = (cluster.run / "jobs" / "progress.jsonl").read_text()
    for name, text in written.items():
        (folder / name).write_text(text)


N_OUTAGES = 7  # four nodes die, one is drained twice and taken down once
SACCT = ("sacct", "-a", "-D", "-P", "-S", "2000-01-01")
EVENTS = ("sacctmgr", "show", "event", "-P", "Start=2000-01-01")
SACCT_FIELDS = (
    "JobID",
    "JobIDRaw",
    "Cluster",
    "User",
    "UID",
    "Account",
    "QOS",
    "Partition",
    "State",
    "ExitCode",
    "DerivedExitCode",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "ElapsedRaw",
    "Suspended",
    "TimelimitRaw",
    "NNodes",
    "AllocCPUS",
    "AllocTRES",
    "ReqTRES",
    "NodeList",
    "Priority",
    "Reason",
    "DBIndex",
    "JobName",
    "WorkDir",
    "Comment",
    "SubmitLine",
)
EVENT_FIELDS = "Cluster,NodeName,Start,End,State,Reason,User,Event"
