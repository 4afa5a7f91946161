"""What both groups do alike: record a run, keep its shards, and refuse what cannot go well."""

import json
import time

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from ettr.checkpoint.dcp import METADATA  # noqa: E402
from ettr.elastic import (  # noqa: E402
    ElasticGroup,
    Generation,
    Protection,
    RecoveryReport,
    Timeouts,
    TorchrunGroup,
    recover,
    rendezvous,
)
from ettr.elastic.rendezvous import Cause, Membership  # noqa: E402
from ettr.elastic.torchrun import Handoff, remove_handoff, save_to_shm  # noqa: E402
from ettr.errors import UsageError  # noqa: E402
from ettr.progress.recorder import ProgressRecorder  # noqa: E402
from ettr.recovery import RecoveryPolicy, RecoverySource  # noqa: E402

pytestmark = pytest.mark.torch

AFTER_A_KILL = Membership(2, ("w0", "w2"), lost=(1,), cause=Cause.DIED, noticed_s=1000.0)
FROM_MEMORY = RecoveryReport(generation=2, source="replica", step=7, reached_step=8)


@pytest.fixture
def under_torchrun(monkeypatch, tmp_path):
    """Makes the group of slot 0 of 2 in an attempt."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")

    def make(attempt: int, **options) -> TorchrunGroup:
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(attempt))
        return TorchrunGroup(folder=tmp_path / "shm", **options)

    return make


@pytest.fixture
def supervised():
    """Makes the group of a rank under a supervisor that says nothing."""
    served = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    served.set(rendezvous.GENERATION, "1")
    made: list[ElasticGroup] = []

    def make(**options) -> ElasticGroup:
        timeouts = Timeouts(60.0, 90.0, 180.0)
        made.append(
            ElasticGroup(
                ("127.0.0.1", served.port), "w0", Protection(), timeouts=timeouts, **options
            )
        )
        return made[-1]

    yield make
    for group in made:
        group._heartbeat.close()


def events(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def nothing_left(caught) -> list[str]:
    return [str(one.message) for one in caught if "finds no shard" in str(one.message)]


def test_an_attempt_that_finds_no_shard_of_those_before_says_so_once_on_a_node(
    under_torchrun, monkeypatch, recwarn, tmp_path
):
    under_torchrun(0)._load_handoff()  # there was none before
    monkeypatch.setenv("LOCAL_RANK", "1")
    under_torchrun(1)._load_handoff()
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert nothing_left(recwarn) == []
    under_torchrun(2)._load_handoff()
    (said,) = nothing_left(recwarn)
    assert said.startswith(f"attempt 2 finds no shard of an attempt before in {tmp_path / 'shm'}.")
    recwarn.clear()
    # a killed rank has left none, and another has: that is a recovery like any other
    save_to_shm(tmp_path / "shm", Handoff(2, 1, 2, {("own", 5): torch.ones(4, dtype=torch.uint8)}))
    under_torchrun(3)._load_handoff()
    assert nothing_left(recwarn) == []
    # it has made a step, and then all ranks are killed: the folder is still there
    remove_handoff(tmp_path / "shm", 1)
    under_torchrun(4)._load_handoff()
    assert len(nothing_left(recwarn)) == 1


def test_either_group_times_a_restart_and_a_restore_for_the_planner(
    under_torchrun, supervised, tmp_path
):
    begin_s = time.time()
    save_to_shm(
        tmp_path / "shm",
        Handoff(0, 0, 2, {("own", 8): torch.zeros(9, dtype=torch.uint8)}, begin_s - 6.0),
    )
    torchrun = under_torchrun(1)
    torchrun._load_handoff()  # which says when the survivors of attempt 0 met the failure
    elastic = supervised()
    elastic._failed_s = begin_s - 6.0
    for group in (torchrun, elastic):
        group.recovered(AFTER_A_KILL, FROM_MEMORY, begin_s)
        group.updated(AFTER_A_KILL, 8, 0.5, 0.1)
        run = group.timings.run()
        assert run.restart_s == pytest.approx(6.0)
        assert 0 <= run.restore_s < 60.0
        assert (run.step_s, run.save_stall_s, run.recoveries) == (0.5, 0.1, 1)


def test_a_replaced_rank_under_torchrun_does_not_know_how_long_the_restart_took(
    under_torchrun, tmp_path
):
    save_to_shm(tmp_path / "shm", Handoff(0, 1, 2, {("own", 5): torch.zeros(9, dtype=torch.uint8)}))
    recorder = ProgressRecorder(tmp_path / "progress.jsonl", run="r")
    group = under_torchrun(1, recorder=recorder)
    group._load_handoff()
    group.recovered(AFTER_A_KILL, FROM_MEMORY, time.time())
    assert group.timings.run().restart_s is None
    restart, restore = events(recorder.path)
    assert (restart["event"], restart["duration_s"]) == ("restart", None)
    assert (restore["event"], restore["detail"]["lost_steps"]) == ("restore", 1)


def test_both_groups_record_the_same_facts(under_torchrun, supervised, tmp_path):
    details = {}
    for name, make in (("torchrun", lambda **o: under_torchrun(1, **o)), ("elastic", supervised)):
        recorder = ProgressRecorder(tmp_path / f"{name}.jsonl", run="r")
        group = make(recorder=recorder)
        group.recovered(AFTER_A_KILL, FROM_MEMORY, time.time())
        group.updated(AFTER_A_KILL, 8, 0.5, 0.1)
        details[name] = {
            one["event"]: set(one["detail"]) - {"attempt", "generation"}
            for one in events(recorder.path)
        }
    assert details["torchrun"] == details["elastic"]
    assert details["torchrun"]["restart"] == {"lost_slots", "cause"}


def test_a_rollback_that_is_broken_off_leaves_no_image_of_a_half_loaded_shard(
    under_torchrun, tmp_path, monkeypatch
):
    """The image would claim to be of the step before the failure."""
    only_rollback = RecoveryPolicy(allowed=(RecoverySource.ROLLBACK,))
    protection = Protection(buddy=False, full=tmp_path / "full", recovery=only_rollback)
    group = under_torchrun(0, protection=protection)
    model = torch.nn.Linear(3, 1)
    first = Generation(group, Membership(1, ("rank0",)), 0, dist.HashStore())
    first.recover(model, torch.optim.AdamW(model.parameters()))
    group._save_on_exit(first)
    group = under_torchrun(1, protection=protection)
    group._load_handoff()
    assert group.shards.own.steps == [0]
    (tmp_path / "full" / "step-000000004").mkdir(parents=True)
    (tmp_path / "full" / "step-000000004" / METADATA).touch()

    def half_loaded(*_):
        torch.nn.init.constant_(other.weight, 77.0)
        raise RuntimeError("a rank was lost during the load")

    monkeypatch.setattr(recover, "load_full", half_loaded)
    second = Generation(group, Membership(2, ("rank0",)), 0, dist.HashStore())
    other = torch.nn.Linear(3, 1)
    with pytest.raises(RuntimeError, match="during the load"):
        second.recover(other, torch.optim.AdamW(other.parameters()))
    second.copy_live()
    assert group.shards.own.steps == []


def test_an_update_before_the_recovery_says_what_to_call(under_torchrun):
    generation = Generation(under_torchrun(0), Membership(1, ("rank0",)), 0, dist.HashStore())
    with (
        pytest.raises(UsageError, match=r"call recover\(model, optimizer\) first"),
        generation.update(1),
    ):
        pass
    with pytest.raises(UsageError, match=r"report: call recover\(model, optimizer\) first"):
        _ = generation.report


@pytest.mark.parametrize("version", [None, "1"])
def test_a_supervisor_of_another_version_is_refused(version, monkeypatch):
    monkeypatch.setenv("ETTR_ELASTIC_STORE", "127.0.0.1:1")
    monkeypatch.setenv("ETTR_ELASTIC_WORKER", "w0")
    monkeypatch.delenv("ETTR_ELASTIC_PROTOCOL", raising=False)
    if version is not None:
        monkeypatch.setenv("ETTR_ELASTIC_PROTOCOL", version)
    with pytest.raises(UsageError, match=r"supervisor has version 1 .* with the same ettr"):
        ElasticGroup.from_env()
