"""The tier under torchft: what it records and restores, and real replicas, really killed."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from ettr.checkpoint import CheckpointError, restoring  # noqa: E402
from ettr.checkpoint.slots import reader  # noqa: E402
from ettr.checkpoint.slots.format import HEADER_BYTES  # noqa: E402
from ettr.checkpoint.slots.reader import open_slot  # noqa: E402
from ettr.elastic import ReplicaTier  # noqa: E402
from ettr.errors import UsageError  # noqa: E402
from ettr.progress import ProgressRecorder, read_progress  # noqa: E402
from ettr.progress.goodput import goodput_of_file  # noqa: E402

WORKER = Path(__file__).with_name("torchft_worker.py")


class Manager:
    """What the tier uses of torchft's manager."""

    def __init__(self) -> None:
        self.step, self.batches, self.replicas = 0, 0, 2
        self.error: Exception | None = None

    def current_step(self) -> int:
        return self.step

    def batches_committed(self) -> int:
        return self.batches

    def num_participants(self) -> int:
        return self.replicas

    def errored(self) -> Exception | None:
        return self.error

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step, self.batches = state["step"], state["batches_committed"]


class Replica:
    """A tiny model that trains alone, and its tier."""

    def __init__(
        self,
        folder: Path,
        *,
        replica: int = 0,
        seed: int = 0,
        every: int = 5,
        clock: Callable[[], float] = time.time,
    ) -> None:
        torch.manual_seed(seed)
        self.model = torch.nn.Linear(4, 3)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.manager = Manager()
        self.progress = folder / f"progress-{replica}.jsonl"
        self.recorder = ProgressRecorder(self.progress, run="r", rank=replica, clock=clock)
        self.tier = ReplicaTier(
            self.model,
            self.optimizer,
            replica=replica,
            running=folder / "running",
            every_steps=every,
            recorder=self.recorder,
            clock=clock,
        )

    def train(self, to: int) -> None:
        while self.manager.step < to:
            self.optimizer.zero_grad()
            data = torch.Generator().manual_seed(self.manager.step)
            self.model(torch.randn(8, 4, generator=data)).square().mean().backward()
            self.manager.step += 1
            self.manager.batches += 2
            self.optimizer.step()
            self.tier.committed()
            self.tier._checkpoint.wait()  # so that no round is skipped

    def values(self) -> list[float]:
        state = [v for moments in self.optimizer.state.values() for _, v in sorted(moments.items())]
        tensors = [*self.model.parameters(), *state]
        return torch.cat([t.detach().double().view(-1) for t in tensors]).tolist()


def events(replica: Replica, kind: str) -> list:
    return [event for event in read_progress(replica.progress) if event.event == kind]


def test_after_the_loss_of_all_replicas_the_newest_whole_step_of_any_comes_back(
    tmp_path: Path,
) -> None:
    far, near = Replica(tmp_path, replica=0), Replica(tmp_path, replica=1, every=7)
    for one in (far, near):
        assert one.tier.resume(one.manager) == 0
    far.train(20)
    near.train(18)  # its newest round is of step 14
    expected = far.values()
    again = Replica(tmp_path, replica=1, seed=9)
    assert again.tier.resume(again.manager) == 20
    assert (again.manager.step, again.manager.batches) == (20, 40)
    assert again.values() == expected
    (restored,) = events(again, "restore")
    assert (restored.step, restored.detail["source"]) == (20, "resume")
    # and it trains on as the one that was lost would have
    far.train(24)
    again.train(24)
    assert again.values() == far.values()


def test_a_fresh_folder_starts_at_zero_with_a_step_count_of_zero(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    assert replica.tier.resume(replica.manager) == 0
    counts = {float(moments["step"]) for moments in replica.optimizer.state.values()}
    assert counts == {0.0}
    assert not events(replica, "restore")


def test_a_first_round_that_was_broken_off_is_no_checkpoint(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    replica.tier.resume(replica.manager)  # the slot is there, and nothing in it
    again = Replica(tmp_path, seed=1)
    assert again.tier.resume(again.manager) == 0


@pytest.mark.parametrize(
    ("of", "name", "call"),
    [(reader, "read_at", 3), (reader.PayloadReader, "read", 2), (restoring, "good_payloads", 1)],
    ids=["headers", "checks", "copies"],
)
def test_who_starts_while_another_replica_saves_reads_its_slot_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: object, name: str, call: int
) -> None:
    living, starting = Replica(tmp_path, every=1), Replica(tmp_path, replica=1, seed=9)
    living.tier.resume(living.manager)
    living.train(5)
    function, calls = getattr(of, name), itertools.count(1)

    def interrupted(*args: object, **kwargs: object) -> object:
        if next(calls) == call:
            with torch.enable_grad():
                living.train(8)  # overwrites both copies of each block
        return function(*args, **kwargs)

    monkeypatch.setattr(of, name, interrupted)
    assert starting.tier.resume(starting.manager) == 8
    assert starting.values() == living.values()


def test_a_checkpoint_that_is_all_damaged_is_reported_and_not_skipped(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    replica.tier.resume(replica.manager)
    replica.train(10)
    replica.tier.close()
    with open_slot(tmp_path / "running", "0") as slot:
        for record in [one for records in slot.records.values() for one in records]:
            at = record.file.places.offset(record.block, record.place) + HEADER_BYTES
            with record.file.path.open("r+b") as file:
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([255 - byte]))
    again = Replica(tmp_path, seed=1)
    with pytest.raises(CheckpointError, match="no step"):
        again.tier.resume(again.manager)


def test_a_living_replicas_state_is_recorded_as_a_recovery_with_its_time(tmp_path: Path) -> None:
    living, healed = Replica(tmp_path), Replica(tmp_path, replica=1, seed=1)
    for one in (living, healed):
        one.tier.resume(one.manager)
    living.train(12)
    healed.manager.step = 12  # as torchft sets it before the state is loaded
    healed.tier.load_state_dict(living.tier.state_dict())
    assert healed.values() == living.values()
    (event,) = events(healed, "restore")
    assert (event.step, event.detail["source"], event.detail["lost_steps"]) == (12, "replica", 0)
    assert event.duration_s >= 0
    assert healed.tier.heals == 1


def test_the_common_start_is_no_recovery_and_a_refused_step_is_a_stall(tmp_path: Path) -> None:
    first, other = Replica(tmp_path), Replica(tmp_path, replica=1, seed=1)
    for one in (first, other):
        one.tier.resume(one.manager)
    other.tier.load_state_dict(first.tier.state_dict())
    assert other.tier.heals == 0
    other.manager.error = RuntimeError("connection closed by peer")
    other.tier.refused()
    (stall,) = events(other, "stall")
    assert "connection closed by peer" in stall.detail["cause"]
    assert not events(other, "restore")


def test_a_change_of_replicas_records_what_it_took_beyond_a_step(tmp_path: Path) -> None:
    now_s = [1_700_000_000.0]
    replica = Replica(tmp_path, clock=lambda: now_s[0])
    replica.tier.resume(replica.manager)
    for step in range(1, 7):
        now_s[0] += 0.5 if step != 4 else 2.5  # a quorum that waited for a dead replica
        replica.manager.replicas = 2 if step < 4 else 1
        replica.manager.step = step
        replica.optimizer.step()
        replica.tier.committed()
    (stall,) = events(replica, "stall")
    assert (stall.step, stall.duration_s) == (3, pytest.approx(2.0))
    assert stall.detail["cause"] == "replicas went from 2 to 1"
    split = goodput_of_file(replica.progress)
    assert split.stall_s == pytest.approx(2.0)
    assert split.productive_s == pytest.approx(3.0)
    assert split.wall_s == pytest.approx(5.0)


def test_only_whole_states_are_saved_beneath_torchft() -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(UsageError, match="it is 'full'"):
        ReplicaTier(
            model,
            torch.optim.SGD(model.parameters()),
            replica=0,
            running_options={"policy": "priority"},
        )


def test_the_manager_is_made_known_before_anything_else(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="resume"):
        Replica(tmp_path).tier.committed()


class Job:
    """Replicas of `torchft_worker.py` with a lighthouse of this process."""

    def __init__(self, folder: Path, **config) -> None:
        from torchft.coordination import LighthouseServer

        self.folder = folder
        self.lighthouse = LighthouseServer(
            bind="127.0.0.1:0",
            min_replicas=1,
            join_timeout_ms=200,
            quorum_tick_ms=50,
            heartbeat_timeout_ms=10_000,  # who is only slow is not to be left behind
        )
        port = self.lighthouse.address().rsplit(":", 1)[1]
        given = {"lighthouse": f"http://127.0.0.1:{port}", "step_s": 0.05}
        (folder / "config.json").write_text(json.dumps(given | config))
        self.running: dict[int, subprocess.Popen] = {}

    def start(self, replica: int) -> None:
        with (self.folder / f"output-{replica}.txt").open("a") as output:
            self.running[replica] = subprocess.Popen(
                [sys.executable, str(WORKER), str(self.folder / "config.json"), str(replica)],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=output,
                stderr=output,
            )

    def kill(self, replica: int) -> None:
        self.running[replica].send_signal(signal.SIGKILL)
        self.running[replica].wait()

    def lines(self, replica: int) -> list[dict]:
        path = self.folder / f"log-{replica}.jsonl"
        texts = path.read_text().split("\n") if path.exists() else []
        return [json.loads(text) for text in texts[:-1]]

    def wait_until(self, what: Callable[[], bool], limit_s: float = 240.0) -> None:
        deadline_s = time.monotonic() + limit_s
        while not what():
            outputs = [p.read_text()[-2000:] for p in self.folder.glob("output-*.txt")]
            assert time.monotonic() < deadline_s, "\n".join(outputs)
            time.sleep(0.05)

    def reached(self, replica: int, step: int) -> bool:
        return any(line["step"] >= step for line in self.lines(replica)[-3:])

    def end(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        self.lighthouse.shutdown()


NEVER = 1_000_000


@pytest.fixture
def job_of(tmp_path: Path):
    pytest.importorskip("torchft")
    made: list[Job] = []

    def make(**config) -> Job:
        made.append(Job(tmp_path, steps=NEVER, **config))
        return made[0]

    yield make
    for job in made:
        job.end()


@pytest.mark.slow
def test_a_killed_replica_catches_up_live_and_the_survivor_keeps_its_process(job_of) -> None:
    # Only the first step lies on disk: a successor that finds the step at which the survivor waits
    # for it is right as it is, and then nothing has to be handed over.
    job = job_of(every_steps=NEVER)
    for replica in (0, 1):
        job.start(replica)
    job.wait_until(lambda: job.reached(0, 10) and job.lines(0)[-1]["replicas"] == 2)
    survivor = job.running[0].pid
    job.kill(1)
    died_at = job.lines(0)[-1]["step"]
    job.wait_until(lambda: job.reached(0, died_at + 5))  # it goes on alone
    assert job.lines(0)[-1]["replicas"] == 1
    left_at = job.lines(1)[-1]["step"]
    job.start(1)
    job.wait_until(lambda: job.lines(1)[-1]["step"] > left_at + 5)
    job.wait_until(lambda: job.lines(0)[-1]["replicas"] == 2 and job.lines(1)[-1]["heals"] > 0)
    healed_at = job.lines(1)[-1]["step"]
    job.wait_until(lambda: job.reached(0, healed_at + 5) and job.reached(1, healed_at + 5))
    assert {line["pid"] for line in job.lines(0)} == {survivor}
    assert job.lines(0) == sorted(job.lines(0), key=lambda line: line["step"])  # never goes back
    mine = {
        line["step"]: line["hash"] for line in job.lines(1) if line["pid"] == job.running[1].pid
    }
    theirs = {line["step"]: line["hash"] for line in job.lines(0)}
    both = mine.keys() & theirs.keys()
    assert len(both) >= 5
    assert all(mine[step] == theirs[step] for step in both)
    restarted = job.folder / f"progress-1-{job.running[1].pid}.jsonl"
    restores = [event for event in read_progress(restarted) if event.event == "restore"]
    restores = [event for event in restores if event.detail["source"] == "replica"]
    assert restores
    assert restores[0].step > restores[0].detail["disk_step"] > 0  # further than the disk was
    stalls = [
        event.detail["cause"]
        for event in read_progress(job.folder / f"progress-0-{survivor}.jsonl")
        if event.event == "stall"
    ]
    assert "replicas went from 2 to 1" in stalls


@pytest.mark.slow
def test_a_successor_that_finds_the_survivors_step_on_disk_agrees_with_it(job_of) -> None:
    job = job_of(every_steps=1)
    for replica in (0, 1):
        job.start(replica)
    job.wait_until(lambda: job.reached(0, 10) and job.lines(0)[-1]["replicas"] == 2)
    job.kill(1)
    job.start(1)

    def restarted() -> dict[int, str]:
        pid = job.running[1].pid
        return {line["step"]: line["hash"] for line in job.lines(1) if line["pid"] == pid}

    job.wait_until(lambda: len(restarted()) >= 10)
    theirs = {line["step"]: line["hash"] for line in job.lines(0)}
    both = restarted().keys() & theirs.keys()
    assert len(both) >= 8
    assert all(restarted()[step] == theirs[step] for step in both)


@pytest.mark.slow
def test_when_every_replica_dies_the_disk_brings_the_run_back(job_of) -> None:
    job = job_of(every_steps=4, settled=True)
    for replica in (0, 1):
        job.start(replica)
    job.wait_until(lambda: job.reached(0, 14) and job.lines(0)[-1]["replicas"] == 2)
    for replica in (0, 1):
        job.running[replica].send_signal(signal.SIGKILL)
    for replica in (0, 1):
        job.running[replica].wait()
    # of both: the one that was killed last may have gone on alone
    last = max(line["step"] for replica in (0, 1) for line in job.lines(replica))
    for replica in (0, 1):
        job.start(replica)

    def restarted(replica: int) -> list[dict]:
        pid = job.running[replica].pid
        return [line for line in job.lines(replica) if line["pid"] == pid]

    job.wait_until(lambda: bool(restarted(0)) and bool(restarted(1)))
    far = max(restarted(0)[-1]["step"], restarted(1)[-1]["step"]) + 3
    job.wait_until(lambda: job.reached(0, far) and job.reached(1, far))
    first = min(restarted(0)[0], restarted(1)[0], key=lambda line: line["step"])
    assert first["step"] == first["resumed"] + 1
    # the round of the newest step, which may be one that nobody has logged; or the one before it
    assert last - 3 <= first["resumed"] <= last + 1
    theirs = {line["step"]: line["hash"] for line in restarted(1)}
    both = [line for line in restarted(0) if line["step"] in theirs]
    assert both
    assert all(theirs[line["step"]] == line["hash"] for line in both)
