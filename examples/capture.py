"""Capture the bundled example: a day of a real Slurm whose clock runs fast.

Needs root, Debian's Slurm packages and `faketime`; half an hour. `make example` calls it. The
daemons, the jobs and their commands run on a clock that is `RATE` times as fast as this machine's;
this process does not.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUN = Path(tempfile.gettempdir()) / "site"
RATE = 60
MIDNIGHT = datetime(2026, 11, 16, tzinfo=UTC)
# the daemons take up to an hour and a half of their own clock to come up
LEAD_S = 5400
BASE_PORT = 23000
SHARED = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory lies on Linux
INSIDE = "ETTR_EXAMPLE_INSIDE"

SETTINGS = """
AuthInfo=socket={run}/munge/munge.sock,cred_expire=120
SlurmdTimeout=600
SlurmctldTimeout=120
KillWait=30
MessageTimeout=600
BatchStartTimeout=3600
SlurmctldDebug=info
JobAcctGatherFrequency=task=600
SchedulerParameters=bf_interval=60,bf_resolution=300,bf_window=2880,sched_interval=60
DefMemPerCPU=2000
TopologyPlugin=topology/tree
PartitionName=interactive Nodes={nodes} MaxTime=600 DefaultTime=60 State=UP OverSubscribe=NO
"""
# the test of the example holds the number against the report's rate
NOTE = """# ettr note
Failures were injected at about 95 times a fleet's rate. Meta published 6.5 failures per 1,000
node-days for RSC-1 (HPCA 2025). The example shows what a report holds, not what a cluster does.
"""
TOPOLOGY = """SwitchName=leaf1 Nodes=gpu[01-04]
SwitchName=leaf2 Nodes=gpu[05-08]
SwitchName=leaf3 Nodes=gpu[09-12]
SwitchName=leaf4 Nodes=gpu[13-16]
SwitchName=spine Switches=leaf[1-4]
"""


def main() -> None:
    """Play the day; its logs go to examples/slurm, what was injected to examples/truth.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=23.3, help="end of the plan")
    parser.add_argument("--out", type=Path, default=HERE / "slurm")
    arguments = parser.parse_args()
    if INSIDE not in os.environ:
        # users and a host name of the example's own, without a trace on this machine
        inside = ("unshare", "--mount", "--uts", sys.executable, *sys.argv)
        sys.exit(subprocess.run(inside, env={**os.environ, INSIDE: "1"}, check=False).returncode)
    sys.path[:0] = [str(HERE.parent / "tests"), str(HERE)]
    shutil.rmtree(RUN, ignore_errors=True)
    try:
        _capture(arguments.hours, arguments.out)
    finally:
        shutil.rmtree(RUN, ignore_errors=True)


def _capture(hours: float, out: Path) -> None:
    from day.plan import ACCOUNTS, NODES
    from day.play import Day, read_clock

    from slurm.cluster import slurm_cluster

    _prepare(sorted(ACCOUNTS))
    settings = SETTINGS.format(run=RUN, nodes=",".join(NODES))
    with fast_clock() as variables:
        clock = read_clock({**os.environ, **variables, "TZ": "UTC"}, RATE)
        train = f"/usr/bin/python3 {HERE / 'day' / 'train.py'}"
        source = str(HERE.parent / "src")
        more = {**variables, "PRETRAIN": train, "PYTHONPATH": source}
        with slurm_cluster(RUN, NODES, BASE_PORT, settings, more) as cluster:
            _add_accounts(cluster, ACCOUNTS)
            _say(f"up at {datetime.fromtimestamp(clock.now_s(), UTC)}")
            day = Day(cluster, clock, MIDNIGHT.timestamp(), _say)
            truth = day.play(hours, hours + 1.5, lambda so_far: _write(cluster, so_far, out))
            _write(cluster, truth, out)


def _say(text: str) -> None:
    print(text, flush=True)


def _prepare(users: list[str]) -> None:
    (RUN / "etc").mkdir(parents=True)
    faults = RUN / "jobs" / "faults"
    faults.mkdir(parents=True)
    faults.chmod(0o777)  # a job takes its own fault away
    shutil.copy(HERE / "day" / "work.sh", RUN / "jobs" / "work.sh")
    (RUN / "etc" / "topology.conf").write_text(TOPOLOGY)
    known = Path("/etc/passwd").read_text()
    lines = [f"{user}:x:{30001 + i}:100::/:/bin/bash\n" for i, user in enumerate(users)]
    passwd = RUN / "etc" / "passwd"
    passwd.write_text(known + "".join(lines))
    subprocess.run(("mount", "--bind", str(passwd), "/etc/passwd"), check=True)
    subprocess.run(("hostname", "head"), check=True)
    hosts = RUN / "etc" / "head-hosts"
    hosts.write_text(Path("/etc/hosts").read_text() + "127.0.0.1 head\n")
    subprocess.run(("mount", "--bind", str(hosts), "/etc/hosts"), check=True)


@contextmanager
def fast_clock() -> Iterator[dict[str, str]]:
    """The variables that put a process on the fast clock, which starts `LEAD_S` before midnight."""
    offset_s = MIDNIGHT.timestamp() - LEAD_S - time.time()
    words = ("faketime", "-f", f"{offset_s:.0f} x{RATE}", "sleep", "1000000000")
    holder = subprocess.Popen(words, env={**os.environ, "TZ": "UTC", "NO_FAKE_STAT": "1"})
    try:
        time.sleep(1)
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        entries = Path(f"/proc/{children[0]}/environ").read_text().split("\0")
        pairs = dict(entry.split("=", 1) for entry in entries if "=" in entry)
        names = ("LD_PRELOAD", "FAKETIME", "FAKETIME_SHARED", "NO_FAKE_STAT")
        # the shared start of the clock is read by jobs of every user
        for name in pairs["FAKETIME_SHARED"].split():
            for file in (SHARED / name[1:], SHARED / f"sem.{name[1:]}"):
                if file.exists():
                    file.chmod(0o666)
        yield {name: pairs[name] for name in names}
    finally:
        for child in children:
            os.kill(int(child), signal.SIGTERM)
        holder.wait(timeout=60)


def _add_accounts(cluster, accounts: dict[str, str]) -> None:  # type: ignore[no-untyped-def]
    from slurm.cluster import wait_until

    names = sorted(set(accounts.values()))
    first = "".join(f"add account {name}\n" for name in names)
    cluster.command("sacctmgr", "-i", text=first + "modify qos high set Preempt=scavenger\n")
    users = "".join(
        f"add user {user} Account={account} DefaultAccount={account} "
        "qos=normal,scavenger,high defaultqos=normal\n"
        for user, account in accounts.items()
    )
    cluster.command("sacctmgr", "-i", text=users)

    def known() -> bool:
        shown = cluster.command("scontrol", "show", "assoc_mgr", "flags=assoc")
        return all(f"UserName={user}(" in shown for user in accounts)

    wait_until(known, 180, "the controller to know the users")


def _write(cluster, truth, out: Path) -> None:  # type: ignore[no-untyped-def]
    from day.play import patiently

    from slurm.scenario import EVENT_FIELDS, EVENTS, SACCT, SACCT_FIELDS

    out.mkdir(parents=True, exist_ok=True)

    def shown(*words: str) -> str:
        return patiently(lambda: cluster.command(*words))

    nodes = shown("scontrol", "show", "node")
    written = {
        "sacct.psv": shown(*SACCT, f"--format={','.join(SACCT_FIELDS)}"),
        "events.psv": shown(*EVENTS, f"Format={EVENT_FIELDS}"),
        # the machine that the nodes share is no part of the story
        "nodes.txt": re.sub(r"BootTime=\S+ ?", "", re.sub(r"OS=.*", "OS=Linux", nodes)),
        "slurmctld.log": (RUN / "log" / "slurmctld.log").read_text(),
        "topology.conf": TOPOLOGY,
        "note.txt": NOTE,
        "progress.jsonl": (RUN / "jobs" / "progress.jsonl").read_text(),
        "kernel.log": "".join(
            f"{datetime.fromtimestamp(moment_s, UTC):%Y-%m-%dT%H:%M:%S.%f+00:00} "
            f"{node} kernel: {text}\n"
            for moment_s, node, text in sorted(truth.kernel)
        ),
    }
    for name, text in written.items():
        (out / name).write_text(text)
    document = {"jobs": truth.jobs, "faults": truth.faults, "operations": truth.operations}
    (out.parent / "truth.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
