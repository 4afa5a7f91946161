"""The stall of a training loop per checkpoint, against torch.distributed.checkpoint, on one state.

About 400 MB: parameters with Adam's two moments. Every figure is the median of several repeats in
one process, the systems taken in an order drawn for each repeat, so that a noisy machine is noisy
for all; before each save AdamW makes a step, which leaves the caches as training does. With the
stall comes the interval of its median that order statistics give, 95 % or a little more, and its
multiple of a plain copy of the same bytes into memory that is warm. DCP counts in its better mode;
moonclip is measured if it is installed. Then the memory that each needs in addition to the state,
each in a process of its own; and the effect of a disk that is too slow: rounds are skipped and
counted, no step waits.
"""

import argparse
import gc
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse

from ettr.checkpoint import Budget, RunningCheckpoint, TrainingState
from ettr.checkpoint.slots.durable_io import OsDisk

PART = Budget(fraction=1 / 8)
COPY, OF_A_COPY = "a plain copy", 1.15  # the stall of a full save that is asked for


class Adam400(nn.Module):
    """Sixteen square layers: 34 million parameters, 403 MB with their moments."""

    def __init__(self, layers: int = 16, width: int = 1448) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))


def trained_state() -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model with moments that are there."""
    model = Adam400()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return model, optimizer


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A step of AdamW, with gradients that are there."""
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.randn_like(parameter)
    optimizer.step()


def moonclip_arm(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer
) -> Callable[[int], tuple[float, float, int]] | None:
    """One save of moonclip; None: it is not installed."""
    try:
        from moonclip import CheckpointManager
    except ImportError:
        return None
    manager = CheckpointManager(str(folder / "moonclip"))

    def save(step: int) -> tuple[float, float, int]:
        before, begin = written_bytes(), time.perf_counter()
        manager.save(step=step, model=model, optimizer=optimizer)
        stall_s = time.perf_counter() - begin
        manager.flush()
        return stall_s, time.perf_counter() - begin, written_bytes() - before

    return save


def flat_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Every tensor by name, for DCP."""
    found = {}
    for name, parameter in model.named_parameters():
        found[name] = parameter.detach()
        for key, value in optimizer.state[parameter].items():
            found[f"{name}/{key}"] = value
    return found


def written_bytes() -> int:
    """Bytes that this process has sent towards the disk."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    return 0


def timed(action: Callable[[], object]) -> float:
    """Seconds that it took."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def median_interval(values: list[float], level: float = 0.95) -> tuple[float, float] | None:
    """The narrowest two order statistics that hold the median so surely; None: too few values.

    It asks for independent repeats of one distribution and for nothing else of it.
    """
    n, ordered = len(values), sorted(values)
    found, outside = None, 0.0
    for at in range(n // 2):
        outside += 2 * math.comb(n, at) / 2**n
        if outside > 1 - level:
            break
        found = ordered[at], ordered[n - 1 - at]
    return found


class Systems:
    """The systems side by side; each call saves once and returns (stall_s, durable_s, bytes)."""

    def __init__(self, folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.folder, self.flat = folder, flat_state(model, optimizer)
        state = TrainingState(model, optimizer)
        self.full = RunningCheckpoint(folder / "full", state, policy="full")
        self.under_way = RunningCheckpoint(folder / "three", state, policy="full", under_way=3)
        self.part = RunningCheckpoint(
            folder / "part", state, policy="round-robin", budget=Budget(fraction=1 / 8)
        )
        self.ranked = RunningCheckpoint(
            folder / "ranked", state, policy="priority", budget=Budget(fraction=1 / 8)
        )
        self.step = 0
        # DCP's own warm buffer: what it needs to reach its best stall.
        self.stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=False,
                use_shared_memory=True,
                use_async_staging=False,
                use_non_blocking_copy=False,
            )
        )
        self.all = (self.full, self.under_way, self.part, self.ranked)
        for checkpoint in self.all:
            checkpoint.save_all(0)
        self._copied = [torch.zeros_like(one) for one in self.flat.values()]
        train(model, optimizer)
        self.ranked.step(0)  # nothing is scored yet; from here on it is
        self.ranked.wait()

    def plain_copy(self) -> tuple[float, float, int]:
        """The bytes alone, tensor by tensor."""
        begin = time.perf_counter()
        for to, one in zip(self._copied, self.flat.values(), strict=True):
            to.copy_(one)
        took_s = time.perf_counter() - begin
        return took_s, took_s, 0

    def dcp_async(self, stager: DefaultStager | None = None) -> tuple[float, float, int]:
        """dcp.async_save in a thread, to a folder of its own, as is its custom."""
        before, begin = written_bytes(), time.perf_counter()
        saved = dcp.async_save(
            self.flat, checkpoint_id=self.folder / f"dcp-{self.step % 2}", async_stager=stager
        )
        # with a stager of one's own there are two futures
        future = saved.upload_completion if isinstance(saved, AsyncSaveResponse) else saved
        stall_s = time.perf_counter() - begin
        future.result()
        return stall_s, time.perf_counter() - begin, written_bytes() - before

    def ours(self, checkpoint: RunningCheckpoint) -> tuple[float, float, int]:
        """One round."""
        before, begin = written_bytes(), time.perf_counter()
        report = checkpoint.step(self.step)
        stall_s = time.perf_counter() - begin
        if report.skipped or not report.blocks:
            raise RuntimeError("the writer was busy, or nothing had changed: no round to time")
        while checkpoint.durable_step != self.step:
            time.sleep(0.0005)
        durable_s = time.perf_counter() - begin
        checkpoint.wait()
        return stall_s, durable_s, written_bytes() - before

    def torch_save(self) -> tuple[float, float, int]:
        """torch.save and fsync: all of it in the loop."""
        before, begin = written_bytes(), time.perf_counter()
        with (self.folder / "t.pt").open("wb") as file:
            torch.save(self.flat, file)
            file.flush()
            os.fsync(file.fileno())
        took_s = time.perf_counter() - begin
        return took_s, took_s, written_bytes() - before


def stall_table(folder: Path, repeats: int, seed: int = 0) -> dict[str, tuple[float, float, float]]:
    """Print stall, time to durable and bytes; returns medians by system."""
    model, optimizer = trained_state()
    systems = Systems(folder, model, optimizer)
    arms: dict[str, Callable[[], tuple[float, float, int]]] = {
        COPY: systems.plain_copy,
        "dcp.async_save": systems.dcp_async,
        "dcp.async_save, warm": lambda: systems.dcp_async(systems.stager),
        "ettr full": lambda: systems.ours(systems.full),
        "ettr full, 3 under way": lambda: systems.ours(systems.under_way),
        "ettr 1/8 round-robin": lambda: systems.ours(systems.part),
        "ettr 1/8 priority": lambda: systems.ours(systems.ranked),
        "torch.save + fsync": systems.torch_save,
    }
    if (moonclip := moonclip_arm(folder, model, optimizer)) is not None:
        arms["moonclip"] = lambda: moonclip(systems.step)
    seen: dict[str, list[tuple[float, float, int]]] = {name: [] for name in arms}
    order = random.Random(seed)
    for repeat in range(repeats + 1):
        for name in order.sample(sorted(arms), len(arms)):
            systems.step += 1
            train(model, optimizer)
            figures = arms[name]()
            if repeat:  # the first is warm-up for all
                seen[name].append(figures)
    medians = {
        name: tuple(statistics.median(column) for column in zip(*rows, strict=True))
        for name, rows in seen.items()
    }
    size = systems.full.total_bytes
    print(
        f"state {size / 1e6:.0f} MB, {len(systems.flat)} tensors, median of {repeats}, "
        f"seed {seed}; "
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}"
    )
    print(
        f"{'system':24}{'stall ms':>10}{'(its median, 95 %)':>20}{'durable ms':>12}"
        f"{'written MB':>12}{'of DCP stall':>14}{'of a copy':>12}"
    )
    base, copy_s = best_of_dcp(medians)[0], medians[COPY][0]
    for name, (stall_s, durable_s, n_bytes) in medians.items():
        between = median_interval([row[0] * 1e3 for row in seen[name]])
        interval = "" if between is None else f"({between[0]:.1f} to {between[1]:.1f})"
        print(
            f"{name:24}{stall_s * 1e3:>10.1f}{interval:>20}{durable_s * 1e3:>12.0f}"
            f"{n_bytes / 1e6:>12.0f}{stall_s / base:>14.2f}{stall_s / copy_s:>12.2f}"
        )
    for checkpoint in systems.all:
        checkpoint.close()
    return medians


def best_of_dcp(medians: Mapping[str, tuple[float, ...]]) -> tuple[float, float]:
    """The smaller stall and the smaller time to durable of DCP's two arms."""
    arms = [medians["dcp.async_save"], medians["dcp.async_save, warm"]]
    return min(arm[0] for arm in arms), min(arm[1] for arm in arms)


def memory_of(name: str, folder: Path) -> int:
    """Bytes of memory at the peak of three saves beyond the state, in this process alone."""
    model, optimizer = trained_state()
    gc.collect()
    before = status_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    state, flat = TrainingState(model, optimizer), flat_state(model, optimizer)
    policy, _, fraction = name.removeprefix("ettr ").partition(" ")
    if name.startswith("ettr"):
        budget = Budget(fraction=1 / 8 if fraction else 1.0)
        with RunningCheckpoint(folder, state, policy=policy, budget=budget) as checkpoint:
            checkpoint.save_all(0)
            for step in range(1, 4):
                checkpoint.step(step)
                checkpoint.wait()
    for step in range(0 if name.startswith("ettr") else 3):
        if name == "torch.save":
            torch.save(flat, folder / "t.pt")
        else:
            saved = dcp.async_save(flat, checkpoint_id=folder / f"{step % 2}")
            future = saved.upload_completion if isinstance(saved, AsyncSaveResponse) else saved
            future.result()
    return status_bytes("VmHWM") - before


def status_bytes(field: str) -> int:
    """A field of this process's status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def memory_table(folder: Path) -> None:
    """Print peak memory beyond the state by system."""
    arms = (
        "ettr round-robin 1/8",
        "ettr priority 1/8",
        "ettr full",
        "dcp.async_save",
        "torch.save",
    )
    print("\npeak memory beyond the state (403 MB, of which 134 MB parameters), each in a process")
    for number, name in enumerate(arms):
        own = folder / str(number)
        own.mkdir()
        command = [sys.executable, __file__, "--memory-of", name, "--folder", str(own)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        print(f"{name:24}{int(done.stdout.split()[-1]) / 1e6:>8.0f} MB", flush=True)


class SlowDisk(OsDisk):
    """A disk of so many bytes a second."""

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        """Write it, late."""
        time.sleep(len(data) / self.bytes_per_s)
        return super().pwrite(fd, data, offset)


def back_pressure(folder: Path, steps: int = 150) -> bool:
    """Print what a disk does that takes ten steps for a round; whether no step waited for it."""
    model, optimizer = trained_state()
    with RunningCheckpoint(
        folder,
        TrainingState(model, optimizer),
        policy="round-robin",
        budget=PART,
        disk=SlowDisk(250e6),
    ) as checkpoint:
        reports = []
        for step in range(steps):
            time.sleep(0.02)  # the step
            reports.append(checkpoint.step(step))
    skipped = [report.stall_s for report in reports if report.skipped]
    saved = [report.stall_s for report in reports if not report.skipped]
    whole = len(skipped) == checkpoint.skipped_rounds and len(skipped) + len(saved) == steps
    passed_ms, saved_ms = (statistics.median(times) * 1e3 for times in (skipped, saved))
    print(
        f"\na disk of 250 MB/s, {steps} steps of 20 ms, 1/8 a round: {len(saved)} rounds saved,"
        f"\n{len(skipped)} skipped and counted; a skipped step took {passed_ms:.2f} ms at the "
        f"median, {max(skipped) * 1e3:.1f} at most;\na saving one {saved_ms:.1f} at the median, "
        f"{max(saved) * 1e3:.1f} at most"
    )
    # A step that waited for the writer would wait for most of a round: 200 ms.
    return whole and max(skipped) < 0.05


def main() -> int:
    """Print the tables; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--seed", type=int, default=0, help="of the order of the systems")
    parser.add_argument("--only-stall", action="store_true", help="no memory, no slow disk")
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    parser.add_argument("--memory-of", help="one system's peak memory, for the table")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    if given.memory_of:
        print(memory_of(given.memory_of, given.folder))
        return 0
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        for part in ("stall", "memory", "slow"):
            (Path(name) / part).mkdir()
        medians = stall_table(Path(name) / "stall", given.repeats, given.seed)
        if given.only_stall:
            return 0
        memory_table(Path(name) / "memory")
        never_waited = back_pressure(Path(name) / "slow")
    dist.destroy_process_group()
    base, copy_s = best_of_dcp(medians), medians[COPY][0]
    targets = (
        ("stall of a full save / a plain copy", medians["ettr full"][0] / copy_s, OF_A_COPY),
        ("the same, 3 under way", medians["ettr full, 3 under way"][0] / copy_s, OF_A_COPY),
        ("stall of 1/8 of the blocks / DCP's", medians["ettr 1/8 round-robin"][0] / base[0], 0.2),
        ("stall of 1/8 by priority / DCP's", medians["ettr 1/8 priority"][0] / base[0], 0.2),
        ("stall of a full save / DCP's", medians["ettr full"][0] / base[0], 1.2),
        ("durable full save / DCP's", medians["ettr full"][1] / base[1], 1.2),
    )
    print()
    for name, value, limit in targets:
        print(f"{'ok  ' if value <= limit else 'MISS'} {name}: {value:.3f} (at most {limit})")
    print(f"{'ok  ' if never_waited else 'MISS'} a busy writer skips, and no step waits for it")
    return int(any(value > limit for _, value, limit in targets) or not never_waited)


if __name__ == "__main__":
    sys.exit(main())
