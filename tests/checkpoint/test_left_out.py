"""What a loop keeps outside of its checkpoint is warned of, where it can be seen."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.optim.lr_scheduler import LinearLR, ReduceLROnPlateau

from ettr.checkpoint import Budget, CheckpointError, RandomStates, RunningCheckpoint, restore
from ettr.errors import UsageError

pytestmark = pytest.mark.torch


def trained(**options) -> dict:
    model = nn.Linear(4, 4)
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), **options)}


def accumulate(state: dict) -> None:
    state["model"](torch.ones(2, 4)).square().mean().backward()


def save(root: Path, state: dict, step: int) -> None:
    with RunningCheckpoint(root, state) as checkpoint:
        accumulate(state)
        state["optimizer"].step()
        checkpoint.save_all(step)


def resume(root: Path, state: dict) -> None:
    with RunningCheckpoint(root, state) as checkpoint:
        assert checkpoint.resume_or_begin().step == 7


@pytest.mark.parametrize("scheduler", [LinearLR, ReduceLROnPlateau])
def test_a_scheduler_that_was_forgotten_is_warned_of_at_the_resume(
    tmp_path: Path, caplog, scheduler
) -> None:
    save(tmp_path, trained(), 7)
    state = trained()
    scheduler(state["optimizer"])
    resume(tmp_path, state)
    forgotten_at_the_resume = [m for m in caplog.messages if "a scheduler was made" in m]
    if scheduler is ReduceLROnPlateau:  # it does not count the optimizer's steps: not to be seen
        assert not forgotten_at_the_resume
        return
    (message,) = forgotten_at_the_resume
    assert "AdamW" in message
    assert "the run is at step 7" in message


class Wrapper:
    """A scheduler as accelerate wraps it."""

    def __init__(self, scheduler) -> None:
        self.scheduler = scheduler

    def state_dict(self) -> dict:
        return self.scheduler.state_dict()

    def load_state_dict(self, state: dict) -> None:
        self.scheduler.load_state_dict(state)


@pytest.mark.parametrize("wrap", [lambda scheduler: scheduler, Wrapper])
def test_one_that_was_given_is_not(tmp_path: Path, caplog, wrap) -> None:
    for _ in range(2):
        state = trained()
        state["lrs"] = wrap(LinearLR(state["optimizer"]))
        if not list(tmp_path.iterdir()):
            save(tmp_path, state, 7)
    resume(tmp_path, state)
    assert not [m for m in caplog.messages if "scheduler" in m]


@pytest.mark.parametrize(("of_update", "seen_at"), [(2, 3), (4, 2)])
def test_gradients_that_are_accumulated_are_warned_of_once(
    tmp_path: Path, caplog, of_update: int, seen_at: int
) -> None:
    state = trained()
    with RunningCheckpoint(tmp_path, state, budget=Budget(fraction=1)) as checkpoint:
        for step in range(1, 9):
            accumulate(state)
            if step % of_update == 0:
                state["optimizer"].step()
                state["optimizer"].zero_grad()
            checkpoint.step(step)
    (message,) = caplog.messages
    assert message.startswith(f"step {seen_at}: parameters have not changed since the last call")


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"foreach": True}])
@pytest.mark.parametrize("keep_gradients", [True, False])
def test_a_loop_that_updates_at_each_step_is_not_warned(
    tmp_path: Path, caplog, options, keep_gradients
) -> None:
    state = trained(**options)
    with RunningCheckpoint(tmp_path, state, budget=Budget(fraction=1)) as checkpoint:
        for step in range(1, 6):
            state["optimizer"].zero_grad(set_to_none=not keep_gradients)
            accumulate(state)
            state["optimizer"].step()
            if not keep_gradients:
                state["optimizer"].zero_grad()
            checkpoint.step(step)
    assert caplog.messages == []


def test_an_optimizer_that_takes_turns_with_another_is_not_warned_of(
    tmp_path: Path, caplog
) -> None:
    both = {"first": trained(), "second": trained()}
    state = {f"{n} {k}": one for n, parts in both.items() for k, one in parts.items()}
    with RunningCheckpoint(tmp_path, state, budget=Budget(fraction=1)) as checkpoint:
        accumulate(both["first"])  # of the generator, whose turn comes last
        for step in range(1, 6):
            accumulate(both["second"])
            both["second"]["optimizer"].step()
            checkpoint.step(step)
    assert caplog.messages == []


def test_a_lazy_module_that_has_no_size_yet_is_refused(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(CheckpointError, match=r"0\.weight of a lazy module has no size yet"):
        RunningCheckpoint(tmp_path, {"model": model})


def with_adapter() -> dict:
    """A run that has added parameters to its model after it had begun."""
    state = trained()
    state["model"].adapter = nn.Parameter(torch.ones(4))
    state["optimizer"].add_param_group({"params": [state["model"].adapter]})
    return state


def test_saved_tensors_that_the_model_does_not_have_are_not_left_out(tmp_path: Path) -> None:
    save(tmp_path, with_adapter(), 7)
    refusal = r"1 saved tensors have no place in the model \(adapter\)"
    plain = trained()
    before = plain["model"].weight.clone()
    with pytest.raises(CheckpointError, match=refusal):
        restore(tmp_path, plain)
    assert torch.equal(plain["model"].weight, before)
    checkpoint = RunningCheckpoint(tmp_path, plain)
    with checkpoint, pytest.raises(CheckpointError, match=refusal):
        checkpoint.resume_or_begin()
    resume(tmp_path, with_adapter())  # nothing of it was overwritten
    report = restore(tmp_path, trained(), allow_missing=True)
    assert report.unused_tensors == ("adapter",)
    assert "not restored: adapter" in str(report)
    assert restore(tmp_path, trained()["model"]).unused_tensors == ()  # to look at a part


def test_moments_of_a_parameter_that_no_optimizer_has_are_not_left_out(tmp_path: Path) -> None:
    # a group that the saved run had added on its way, and this one has not yet
    state = trained()
    save(tmp_path, state, 7)
    model = nn.Linear(4, 4)
    fewer = {"model": model, "optimizer": torch.optim.AdamW([model.bias])}
    with pytest.raises(CheckpointError, match="saved moments have no place in the optimizer"):
        resume(tmp_path, fewer)
    report = restore(tmp_path, fewer, allow_missing=True)
    assert "exp_avg of weight" in report.unused_moments
    restore(tmp_path, {"model": model})  # a model alone is only looked at


@pytest.mark.parametrize("forgotten", [nn.Module, dict])
def test_a_run_does_not_go_on_without_the_optimizer_that_it_had_saved(
    tmp_path: Path, forgotten
) -> None:
    # the resume saves all of the state again, and the moments would be lost with the older copies
    save(tmp_path, trained(), 7)
    model = nn.Linear(4, 4)
    state = model if forgotten is nn.Module else {"model": model}
    with (
        RunningCheckpoint(tmp_path, state) as checkpoint,
        pytest.raises(CheckpointError, match="the state, for it holds no optimizer") as refused,
    ):
        checkpoint.resume_or_begin()
    assert "exp_avg of weight" in str(refused.value)
    assert "add it to the state, or give allow_missing=True" in str(refused.value)
    resume(tmp_path, trained())  # with the optimizer all of it is still there
    with RunningCheckpoint(tmp_path, {"model": model}) as checkpoint:
        report = checkpoint.resume_or_begin(allow_missing=True).report
    assert "exp_avg of weight" in report.unused_moments


def test_a_run_does_not_go_on_without_an_object_where_it_has_no_optimizer(tmp_path: Path) -> None:
    saved = {"model": nn.Linear(4, 4), "random": RandomStates()}
    with RunningCheckpoint(tmp_path, saved) as checkpoint:
        checkpoint.save_all(7)
    refusal = "random: saved, and not given to the restore"
    with (
        RunningCheckpoint(tmp_path, {"model": nn.Linear(4, 4)}) as checkpoint,
        pytest.raises(CheckpointError, match=refusal),
    ):
        checkpoint.resume_or_begin()


def test_two_optimizers_of_one_parameter_are_refused(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    both = [torch.optim.SGD(model.parameters(), momentum=0.9), torch.optim.AdamW([model.bias])]
    with pytest.raises(CheckpointError, match="two optimizers train 1 parameters"):
        RunningCheckpoint(tmp_path, {"model": model, "first": both[0], "second": both[1]})


def test_a_model_that_has_become_smaller_resumes(tmp_path: Path) -> None:
    save(tmp_path, with_adapter(), 6)
    smaller = trained()
    with RunningCheckpoint(tmp_path, smaller, newer="overwrite") as checkpoint:
        checkpoint.save_all(7)
    resume(tmp_path, trained())


@pytest.fixture
def one_rank():
    """A group of one rank, for FSDP2."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Own(torch.optim.Optimizer):
    """An optimizer of others: kernels for lists, and no option that says so."""

    def __init__(self, parameters, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            with_gradient = [p for p in group["params"] if p.grad is not None]
            torch._foreach_add_(with_gradient, [p.grad for p in with_gradient], alpha=-group["lr"])


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, foreach=True),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        lambda parameters: Own(parameters, lr=0.1),
    ],
)
def test_updates_of_dtensors_that_no_counter_shows_are_saved(
    tmp_path: Path, caplog, one_rank, optimizer
) -> None:
    model = nn.Linear(4, 4)
    fully_shard(model)
    state = {"model": model, "optimizer": optimizer(model.parameters())}
    budget = Budget(fraction=1)
    with RunningCheckpoint(tmp_path, state, policy="dirty", budget=budget) as checkpoint:
        checkpoint.save_all(0)
        for step in range(1, 4):
            accumulate(state)
            state["optimizer"].step()
            checkpoint.step(step)
            checkpoint.wait()
            assert {age.step for age in checkpoint.ages()} == {step}
    assert caplog.messages == []


@pytest.mark.parametrize("given", [True, False])
def test_random_states_that_were_forgotten_are_warned_of_at_the_resume(
    tmp_path: Path, caplog, given: bool
) -> None:
    for resumes in (False, True):
        state = trained() | ({"random": RandomStates()} if given else {})
        resume(tmp_path, state) if resumes else save(tmp_path, state, 7)
    warned = [m for m in caplog.messages if "holds no random states" in m]
    assert len(warned) == (not given)


def test_options_that_the_checkpoint_replaces_are_said(tmp_path: Path) -> None:
    save(tmp_path, trained(lr=0.1, weight_decay=0.25), 7)
    report = restore(tmp_path, trained(lr=0.01, weight_decay=0.25, betas=(0.8, 0.9)))
    assert report.replaced_options == ("lr 0.1 for 0.01", "betas (0.9, 0.999) for (0.8, 0.9)")
    assert "options as saved, not as built: lr 0.1 for 0.01, betas (0.9, 0.999)" in str(report)
    assert restore(tmp_path, trained(lr=0.1, weight_decay=0.25)).replaced_options == ()


def test_a_rate_that_a_scheduler_has_changed_is_not_replaced(tmp_path: Path) -> None:
    state = trained(lr=0.1)
    state["lrs"] = LinearLR(state["optimizer"])
    for _ in range(3):
        state["optimizer"].step()
        state["lrs"].step()
    save(tmp_path, state, 7)
    for rate, said in ((0.1, ()), (0.2, ("lr 0.1 for 0.2",))):
        state = trained(lr=rate)
        state["lrs"] = LinearLR(state["optimizer"])
        assert restore(tmp_path, state).replaced_options == said


def test_a_state_that_is_no_dictionary_is_refused_with_what_to_give(tmp_path: Path) -> None:
    refusal = "state: of type list; give a dictionary"
    with pytest.raises(UsageError, match=refusal):
        RunningCheckpoint(tmp_path, list(trained().values()))
    save(tmp_path, trained(), 7)
    with pytest.raises(UsageError, match=refusal):
        restore(tmp_path, list(trained().values()))
