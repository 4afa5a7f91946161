"""Survivors regroup by torch's own change of a group's members: real ranks, really killed.

Where the installed torch has none, what it says; the rest needs torch 2.14 or later.
"""

import signal

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from elastic_runs import Outcome, kill, survivors_keep_their_pid, train  # noqa: E402
from ettr.elastic import ElasticGroup, available_backends, groups, reconfigure  # noqa: E402  # noqa: E402
from ettr.elastic.groups import Regroup, Timeouts  # noqa: E402
from ettr.errors import UsageError  # noqa: E402

needs_reconfigure = pytest.mark.skipif(
    bool(reconfigure.missing()), reason=f"torch {torch.__version__} cannot reconfigure a group"
)


@pytest.fixture
def without_reconfigure(monkeypatch):
    monkeypatch.delattr(dist, "_reconfigure", raising=False)


@pytest.fixture
def no_store():
    def connect():
        raise AssertionError("refused before it connects")

    return connect


def test_a_torch_without_it_is_refused_by_the_names_it_lacks(without_reconfigure, no_store):
    assert "torch.distributed._reconfigure" in reconfigure.missing()
    with pytest.raises(
        UsageError,
        match=r'"reconfigure" was given and torch .* has no .*_reconfigure.*; install torch 2.14 '
        r'or later, or leave regroup at "reinit"',
    ):
        groups.former("reconfigure", no_store, Timeouts(), lambda: 0)
    known = {backend.name: backend for backend in available_backends()}
    assert not known["reconfigure"].present


def test_a_group_of_two_backends_is_refused(monkeypatch, no_store):
    monkeypatch.setattr(reconfigure, "missing", tuple)
    monkeypatch.setattr(groups, "backend", lambda: "cpu:gloo,cuda:nccl")
    with pytest.raises(UsageError, match=r"one backend only: use regroup=\"reinit\""):
        groups.former(Regroup.RECONFIGURE, no_store, Timeouts(), lambda: 0)


def test_an_unknown_way_says_which_there_are(no_store):
    with pytest.raises(UsageError, match=r'"restart" was given; it is one of reinit, reconfigure'):
        groups.former("restart", no_store, Timeouts(), lambda: 0)
    assert isinstance(groups.former("reinit", no_store, Timeouts(), lambda: 0), groups.Reinit)


def test_the_way_may_be_chosen_for_a_script_that_does_not_name_it(monkeypatch, without_reconfigure):
    monkeypatch.setenv("ETTR_ELASTIC_STORE", "127.0.0.1:1")
    monkeypatch.setenv("ETTR_ELASTIC_WORKER", "w0")
    monkeypatch.setenv("ETTR_ELASTIC_REGROUP", "reconfigure")
    with pytest.raises(UsageError, match=r"install torch 2\.14 or later"):
        ElasticGroup.from_env()
    active = {backend.name for backend in available_backends() if backend.active}
    assert active == {"supervisor", "reconfigure"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Outcome:
    return train(tmp_path_factory.mktemp("reconfigure") / "undisturbed", spares=0)


@pytest.mark.slow
@needs_reconfigure
def test_survivors_keep_process_and_group_and_end_bit_for_bit_as_undisturbed(
    undisturbed: Outcome, tmp_path
) -> None:
    kills = [kill(2, 5, "update"), kill(0, 10, "compute"), kill(3, 15, "update")]
    outcome = train(tmp_path / "run", kills=kills, regroup="reconfigure")
    assert [loss.slot for loss in outcome.report.losses] == [2, 0, 3]
    assert {loss.status for loss in outcome.report.losses} == {-signal.SIGKILL}
    survivors_keep_their_pid(outcome)
    for number in (1, 2, 3, 4):
        assert {r["formed"] for r in outcome.generation(number)} == {"reconfigure"}
    groups_of = {}
    for rank in outcome.recovered:
        groups_of.setdefault(rank["pid"], set()).add(rank["default_group"])
    assert all(len(found) == 1 for found in groups_of.values())  # the same object all along
    for number in (2, 3, 4):
        ranks = outcome.generation(number)
        assert {r["source"] for r in ranks} == {"replica"}
        assert all(r["lost_steps"] <= 1 for r in ranks)
    assert outcome.final == undisturbed.final


@pytest.mark.slow
@needs_reconfigure
def test_groups_that_a_generation_made_of_its_own_are_made_anew(
    undisturbed: Outcome, tmp_path
) -> None:
    kills = [kill(1, 6, "compute"), kill(2, 12, "compute")]
    outcome = train(tmp_path / "pairs", kills=kills, regroup="reconfigure", subgroups=True)
    survivors_keep_their_pid(outcome)
    assert {r["formed"] for r in outcome.recovered} == {"reconfigure"}
    assert outcome.final == undisturbed.final


@pytest.mark.slow
@needs_reconfigure
def test_a_stopped_rank_is_fenced_and_its_group_changed_without_it(
    undisturbed: Outcome, tmp_path
) -> None:
    stop = kill(1, 9, "compute", signal=int(signal.SIGSTOP))
    outcome = train(tmp_path / "hung", kills=[stop], heartbeat_s=30.0, regroup="reconfigure")
    (loss,) = outcome.report.losses
    assert (loss.slot, loss.cause) == (1, "hung")
    survivors_keep_their_pid(outcome)
    assert {r["formed"] for r in outcome.recovered} == {"reconfigure"}
    assert outcome.final == undisturbed.final


@pytest.mark.slow
@needs_reconfigure
def test_where_the_change_fails_all_ranks_form_a_new_group(undisturbed: Outcome, tmp_path) -> None:
    kills = [kill(2, 5, "compute"), kill(0, 10, "update")]
    outcome = train(tmp_path / "spoilt", kills=kills, regroup="reconfigure", spoil=(3, 2))
    survivors_keep_their_pid(outcome)
    formed = [{r["formed"] for r in outcome.generation(n)} for n in (1, 2, 3)]
    assert formed == [{"reconfigure"}, {"reinit"}, {"reinit"}]
    assert outcome.final == undisturbed.final


@needs_reconfigure
def test_a_group_that_was_never_formed_takes_no_connection_along(monkeypatch) -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    control = dist.TCPStore("127.0.0.1", server.port, is_master=False, wait_for_workers=False)
    former = groups.former("reconfigure", lambda: server, Timeouts(), lambda: 0)
    former.release(again=True)
    control.set("still", "there")

    def cut(*_):
        raise dist.DistNetworkError("a rank was lost while all say their handles")

    monkeypatch.setattr(reconfigure, "_all_say", cut)
    with pytest.raises(RuntimeError, match="was lost"):
        former.form(1, 0, 2, dist.PrefixStore("gen1", server))
    former.release(again=True)
    assert control.get("still") == b"there"
    former.release(again=False)


@needs_reconfigure
def test_one_rank_alone_changes_its_group_from_generation_to_generation() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    former = groups.former("reconfigure", lambda: store, Timeouts(), lambda: 0)
    try:
        seen = []
        for generation in (1, 2, 5):
            mine = dist.PrefixStore(f"gen{generation}", store)
            assert former.form(generation, 0, 1, mine) is Regroup.RECONFIGURE
            seen.append(dist.group.WORLD)
            own = dist.new_group([0])
            both = torch.ones(1)
            dist.all_reduce(both, group=own)
            former.release(again=True)
            assert dist.is_initialized()
        assert len({id(group) for group in seen}) == 1
        # a generation that was seen before is refused, and a new group is formed instead
        again = former.form(5, 0, 1, dist.PrefixStore("gen5 again", store))
        assert again is Regroup.REINIT
        assert "already used" in former.given_up
        former.release(again=True)
        assert not dist.is_initialized()
    finally:
        former.release(again=False)
