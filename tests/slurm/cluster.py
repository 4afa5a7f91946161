"""A real Slurm on loopback: munge, MariaDB, slurmdbd, slurmctld and several slurmd, no systemd.

Each node is a slurmd in PID, mount and UTS namespaces of its own, so that SIGKILL of it takes the
node's steps along, as the death of a machine would. Needs root and Debian's Slurm packages.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SBIN = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
GPUS_PER_NODE = 8
CLUSTER = "virt"

SLURM_CONF = """
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# a requeued job waits cred_expire seconds before it may start again; the default is 120
AuthInfo=socket={run}/munge/munge.sock,cred_expire=10
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
StateSaveLocation={run}/state
SlurmdSpoolDir={run}/spool/%n
SlurmctldPidFile={run}/pid/slurmctld.pid
SlurmdPidFile={run}/pid/slurmd.%n.pid
SlurmctldLogFile={run}/log/slurmctld.log
SlurmdLogFile={run}/log/slurmd.%n.log
SlurmctldDebug=verbose
MpiDefault=none
SwitchType=switch/none
ReturnToService=1
ProctrackType={proctrack}
TaskPlugin={task}
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=0,bf_interval=2,batch_sched_delay=0
SlurmctldTimeout=30
# a node of a busy machine that is slow to answer is not down
SlurmdTimeout=30
BatchStartTimeout=120
KillWait=2
MinJobAge=300
MessageTimeout=60
JobRequeue=1
RequeueExit=99
PriorityType=priority/multifactor
PriorityWeightQOS=10000
PreemptType=preempt/qos
PreemptMode=REQUEUE
PreemptExemptTime=00:00:00
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd_port}
# the connection to slurmdbd does not look at AuthInfo; it takes the socket from here
AccountingStoragePass={run}/munge/munge.sock
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment
GresTypes=gpu
# believe this file, not the host's two cores
SlurmdParameters=config_overrides
TreeWidth=65533
RebootProgram=/bin/true
"""

SLURMDBD_CONF = """
AuthType=auth/munge
AuthInfo=socket={run}/munge/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={dbd_port}
SlurmUser=root
LogFile={run}/log/slurmdbd.log
PidFile={run}/pid/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={mysql_port}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
"""

START_NODE = 'mount --bind "$1" /etc/hosts; hostname "$2"; exec slurmd -D -N "$2" -c'


@dataclass
class SlurmCluster:
    """A running cluster; made by `slurm_cluster`.

    `settings` are lines of slurm.conf in place of those of the same name; `variables` are
    added to the environment of every daemon, command and job.
    """

    run: Path
    nodes: Sequence[str]
    base_port: int
    cgroup: bool
    settings: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What a Slurm command needs to find this cluster; its clock is UTC."""
        conf = str(self.run / "etc" / "slurm.conf")
        return {
            **os.environ,
            "PATH": SBIN,
            "SLURM_CONF": conf,
            "TZ": "UTC",
            # named by variables, so that no path of the machine stands in the accounting
            "TRAIN": f"{sys.executable} {Path(__file__).with_name('train_job.py')}",
            **self.variables,
        }

    def command(self, *words: str, text: str | None = None, user: str | None = None) -> str:
        """Run a Slurm command, as root or as a user, and return what it prints."""
        done = subprocess.run(
            words,
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.run / "jobs",
            user=user,
        )
        if done.returncode:
            what = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
            raise RuntimeError(f"{' '.join(words)}: {what}")
        return done.stdout

    def submit(self, name: str, *options: str, wrap: str, user: str | None = None) -> str:
        """Submit a batch job and return its id."""
        output = str(self.run / "jobs" / "%x-%j.out")
        words = ("sbatch", "--parsable", "-o", output, "--open-mode=append", "-J", name)
        return self.command(*words, *options, "--wrap", wrap, user=user).strip()

    def submit_heterogeneous(self, name: str, *parts: Sequence[str], script: str) -> str:
        """Submit a job of several parts, each with its own options, and return the leader's id."""
        path = self.run / "jobs" / f"{name}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        output = str(self.run / "jobs" / "%x-%j.out")
        words = ["sbatch", "--parsable"]
        for place, options in enumerate(parts):
            words += [*([":"] if place else []), "-J", name, "-o", output, *options]
        return self.command(*words, str(path)).strip()

    def job_state(self, job_id: str) -> str:
        """State of a job as the controller sees it now."""
        shown = self.command("scontrol", "show", "job", "-o", job_id)
        return shown.partition("JobState=")[2].split(" ", 1)[0]

    def wait_for_jobs(self, job_ids: Sequence[str], seconds: float = 400) -> None:
        """Wait until each of the jobs has ended."""
        busy = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED"}

        def all_ended() -> bool:
            return not any(self.job_state(job_id) in busy for job_id in job_ids)

        wait_until(all_ended, seconds, f"jobs {', '.join(job_ids)} to end")

    def wait_for_state(self, job_id: str, state: str, seconds: float = 240) -> None:
        """Wait until a job is in a state."""
        wait_until(lambda: self.job_state(job_id) == state, seconds, f"job {job_id} to be {state}")

    def node_state(self, node: str) -> str:
        """State of a node as sinfo prints it."""
        return self.command("sinfo", "-h", "-N", "-n", node, "-o", "%T").split("\n", 1)[0].strip()

    def update_node(self, node: str, state: str, reason: str | None = None) -> None:
        """Set a node's state as an operator would."""
        words = ["scontrol", "update", f"NodeName={node}", f"State={state}"]
        self.command(*words, *([f"Reason={reason}"] if reason else []))

    def start_node(self, node: str) -> None:
        """Start a node's slurmd."""
        (self.run / "spool" / node).mkdir(parents=True, exist_ok=True)
        unshare = ("unshare", "--pid", "--mount-proc", "--uts", "--fork", "--kill-child")
        hosts = str(self.run / "etc" / "hosts")
        self._start(node, *unshare, "bash", "-c", START_NODE, "_", hosts, node)

    def kill_node(self, node: str) -> None:
        """Kill a node as a power cut would: its slurmd, steps and jobs at once."""
        process = self.processes.pop(node)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=120)

    def _start(self, name: str, *words: str) -> None:
        log = (self.run / "log" / f"{name}.start.log").open("ab")
        with log:
            self.processes[name] = subprocess.Popen(
                words,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _write_conf(self) -> None:
        for name in ("etc", "log", "pid", "state", "spool", "munge", "mysql", "jobs", "dev"):
            (self.run / name).mkdir(parents=True, exist_ok=True)
        (self.run / "jobs").chmod(0o1777)
        values = {
            "cluster": CLUSTER,
            "host": socket.gethostname().split(".")[0],
            "run": self.run,
            "ctld_port": self.base_port + 2,
            "dbd_port": self.base_port + 3,
            "mysql_port": self.base_port + 6,
            "slurmd_port": self.base_port + 100,
            "task": "task/cgroup" if self.cgroup else "task/none",
            "proctrack": "proctrack/cgroup" if self.cgroup else "proctrack/linuxproc",
        }
        etc = self.run / "etc"
        (etc / "slurm.conf").write_text(
            self._general_conf(values) + self._nodes_conf(values) + self.settings
        )
        dbd = etc / "slurmdbd.conf"
        dbd.write_text(SLURMDBD_CONF.format(**values))
        dbd.chmod(0o600)
        # a GPU without a device file is not counted; copies of /dev/null will do
        for index in range(GPUS_PER_NODE):
            device = self.run / "dev" / f"nvidia{index}"
            if not device.exists():
                subprocess.run(("mknod", str(device), "c", "1", "3"), check=True)
        (etc / "gres.conf").write_text(
            f"NodeName={','.join(self.nodes)} Name=gpu Type=h100 "
            f"File={self.run}/dev/nvidia[0-{GPUS_PER_NODE - 1}]\n"
        )
        cgroup = "CgroupAutomount=no\n"
        if self.cgroup:
            cgroup += "CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\nConstrainCores=no\n"
        (etc / "cgroup.conf").write_text(cgroup)
        names = "".join(f"127.0.0.1 {node}\n" for node in self.nodes)
        known = Path("/etc/hosts").read_text() + f"127.0.0.1 {values['host']}\n"
        (etc / "hosts").write_text(known + names)

    def _general_conf(self, values: dict[str, object]) -> str:
        """The settings of all clusters, without those that this one sets itself."""
        own = {line.partition("=")[0] for line in self.settings.splitlines()}
        lines = SLURM_CONF.format(**values).splitlines(keepends=True)
        return "".join(line for line in lines if line.partition("=")[0] not in own)

    def _nodes_conf(self, values: dict[str, object]) -> str:
        nodes = "".join(
            f"NodeName={node} NodeHostname={values['host']} NodeAddr=127.0.0.1 "
            f"Port={self.base_port + 100 + i} CPUs=16 Sockets=1 CoresPerSocket=16 "
            f"ThreadsPerCore=1 RealMemory=64000 Gres=gpu:h100:{GPUS_PER_NODE} State=UNKNOWN\n"
            for i, node in enumerate(self.nodes, start=1)
        )
        partition = (
            f"PartitionName=train Nodes={','.join(self.nodes)} Default=YES MaxTime=INFINITE "
            "DefaultTime=10 State=UP OverSubscribe=NO\n"
        )
        return nodes + partition

    def start(self) -> None:
        """Start every daemon and wait until all nodes are idle."""
        self._write_conf()
        self._start_munge()
        self._start_database()
        self._start_slurmdbd()
        self._quietly("sacctmgr", "-i", "-Q", "add", "cluster", CLUSTER)
        self._start("slurmctld", "slurmctld", "-D")
        wait_until(lambda: self._answers("scontrol", "ping"), 180, "slurmctld")
        for node in self.nodes:
            self.start_node(node)
        wait_until(self._all_idle, 180, f"{len(self.nodes)} idle nodes")
        self._add_accounts()

    def _start_slurmdbd(self) -> None:
        """Start slurmdbd; up to three times where it ends or hangs, as on a busy disk it may."""
        for attempt in (1, 2, 3):
            self._start("slurmdbd", "slurmdbd", "-D")
            if self._slurmdbd_answers(120.0):
                return
            time.sleep(2.0 * attempt)
        log = (self.run / "log" / "slurmdbd.log").read_text(errors="replace")
        raise RuntimeError(f"slurmdbd did not start; the end of its log:\n{log[-3000:]}")

    def _slurmdbd_answers(self, seconds: float) -> bool:
        """Whether it answers in time; it is killed where it does not."""
        process = self.processes["slurmdbd"]

        def answers_or_ended() -> bool:
            asked = self._answers("sacctmgr", "-n", "show", "cluster")
            return asked or process.poll() is not None

        try:
            wait_until(answers_or_ended, seconds, "slurmdbd")
        except TimeoutError:
            process.kill()
            process.wait(timeout=20)
        return process.poll() is None

    def _start_munge(self) -> None:
        munge = self.run / "munge"
        key = munge / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self._start(
            "munged",
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={munge}/munge.sock",
            f"--pid-file={self.run}/pid/munged.pid",
            f"--log-file={self.run}/log/munged.log",
            f"--seed-file={munge}/munge.seed",
        )
        wait_until(lambda: self._answers("munge", "-n", "-S", f"{munge}/munge.sock"), 180, "munge")

    def _start_database(self) -> None:
        # mariadbd runs as mysql: its files lie in a folder of mysql's, or it ends without a word
        data = self.run / "mysql"
        shutil.chown(data, "mysql", "mysql")
        # a starting server deletes temporary tables that it finds in its temporary folder, those
        # of another cluster that is set up at the same time too
        temporary = data.with_name("mysql-tmp")
        temporary.mkdir()
        shutil.chown(temporary, "mysql", "mysql")
        self.command(
            "mariadb-install-db",
            "--no-defaults",
            "--user=mysql",
            f"--datadir={data}",
            f"--tmpdir={temporary}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        )
        sock = f"--socket={data}/mysqld.sock"
        self._start(
            "mariadbd",
            "mariadbd",
            "--no-defaults",
            "--user=mysql",
            f"--datadir={data}",
            f"--tmpdir={temporary}",
            sock,
            f"--port={self.base_port + 6}",
            "--bind-address=127.0.0.1",
            f"--pid-file={data}/mariadbd.pid",
            f"--log-error={data}/mariadbd.log",
            "--innodb-buffer-pool-size=128M",
            "--innodb-lock-wait-timeout=900",
            "--innodb-flush-log-at-trx-commit=0",
            "--skip-log-bin",
        )
        client = ("--no-defaults", sock, "-uroot")
        wait_until(lambda: self._answers("mariadb-admin", *client, "ping"), 180, "mariadbd")
        users = "".join(
            f"CREATE USER 'slurm'@'{host}' IDENTIFIED BY 'slurm';"
            f"GRANT ALL ON slurm_acct.* TO 'slurm'@'{host}';"
            for host in ("127.0.0.1", "localhost")
        )
        self.command("mariadb", *client, "-e", f"CREATE DATABASE slurm_acct;{users}")

    def _add_accounts(self) -> None:
        self._quietly(
            "sacctmgr",
            "-i",
            text="add account research\n"
            "modify qos normal set Priority=10 PreemptMode=requeue\n"
            "add qos scavenger Priority=1 PreemptMode=requeue\n"
            "add qos high Priority=1000 Preempt=scavenger,normal PreemptMode=requeue\n",
        )
        # a second process, since the first one's list of QOS does not know the new ones
        users = "".join(
            f"add user {user} Account=research DefaultAccount=research "
            "qos=normal,scavenger,high defaultqos=normal\n"
            for user in ("root", "www-data", "games")
        )
        self._quietly("sacctmgr", "-i", text=users)
        # the controller is told of them by slurmdbd, in its own time
        wait_until(self._knows_accounts, 180, "the controller to know the accounts")

    def _knows_accounts(self) -> bool:
        known = self.command("scontrol", "show", "assoc_mgr", "flags=assoc,qos")
        names = ("UserName=root(", "UserName=www-data(", "UserName=games(")
        return all(name in known for name in (*names, "QOS=scavenger(", "QOS=high("))

    def _quietly(self, *words: str, text: str | None = None) -> None:
        subprocess.run(
            words, env=self.environment, input=text, capture_output=True, text=True, check=False
        )

    def _answers(self, *words: str) -> bool:
        """Whether a command succeeds; one that hangs does not."""
        try:
            done = subprocess.run(
                words, env=self.environment, capture_output=True, check=False, timeout=60
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def _all_idle(self) -> bool:
        idle = self.command("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split()
        return len(set(idle)) == len(self.nodes)

    def stop(self) -> None:
        """Stop every daemon, the nodes first."""
        self._quietly("scancel", "-Q", "--full", "-p", "train")
        order = [name for name in self.processes if name in self.nodes]
        order += ["slurmctld", "slurmdbd", "mariadbd", "munged"]
        for name in order:
            process = self.processes.pop(name, None)
            if process is None:
                continue
            if name in self.nodes:
                process.kill()  # and its slurmd with it: unshare does not hand on a SIGTERM
            else:
                process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=20)


def wait_until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until `holds()`; an error that names `what` if it does not within `seconds`."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.1)


def memory_cgroup() -> bool:
    """Whether this machine has the cgroup v1 memory controller that OUT_OF_MEMORY needs."""
    return Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists()


@contextmanager
def slurm_cluster(
    run: Path,
    nodes: Sequence[str] = tuple(f"node{i}" for i in range(1, 7)),
    base_port: int = 17500,
    settings: str = "",
    variables: Mapping[str, str] | None = None,
) -> Iterator[SlurmCluster]:
    """Start a cluster in the folder `run`, and stop it at the end."""
    cluster = SlurmCluster(run, nodes, base_port, memory_cgroup(), settings, variables or {})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
