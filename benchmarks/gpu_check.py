"""What can only be seen on a GPU, in eight minutes at most: `make gpu-check`.

Saves from the device through pinned memory (all blocks, an eighth, three full saves under way),
next to a plain copy of the same bytes into warm pinned memory; restore and verify; torchtitan as it
is, by its own test; and two ranks of `ettr elastic` of which one is killed, on NCCL where there are
two GPUs, else on gloo with tensors of one GPU. The tables go to docs/results/gpu-check.md.

Each part has a share of the time: on a slow disk there are fewer repeats, and where a part takes
longer than all that is left, the page ends with what was measured until then.

Without a GPU the same code runs on the CPU with a small state, nothing is written, and a sentence
says of each part what that does not measure.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from ettr.checkpoint import Budget, RunningCheckpoint, restore, verify

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results" / "gpu-check.md"
LIMIT_S, SAVES_SHARE, RANKS_SHARE = 480.0, 0.4, 0.4  # the rest is torchtitan's
FEWEST_REPEATS = 3
COPIES_ON_DISK = 6  # of the state: two of each slot and file, while another process takes it over
STEPS, KILLED_STEP = 12, 7
NOT_MEASURED = {
    "saves": "Not measured: stalls of copies from a GPU through pinned memory; those above are of "
    "copies within the host's memory.",
    "ranks": "Not measured: NCCL and its abort; the ranks above are on gloo.",
    "torchtitan": "Not measured: torchtitan unmodified; on the CPU it is among the tests "
    "(`tests/adapters/test_torchtitan.py`), with its look-ups of devices replaced.",
}
GUARDS: dict[str, dict[str, object]] = {
    "undisturbed": {},
    "a buddy's copies": {"kill": True},
    "parity of 2": {"kill": True, "parity": 2},
    "replicas, just in time": {"kill": True, "replicas": True},
}
POLICIES: dict[str, dict[str, object]] = {
    "full": {"policy": "full"},
    "full, 3 under way": {"policy": "full", "under_way": 3},
    "1/8, round-robin": {"policy": "round-robin", "budget": Budget(fraction=1 / 8)},
    "1/8, priority": {"policy": "priority", "budget": Budget(fraction=1 / 8)},
}


def state_of(device: str, megabytes: int) -> dict[str, object]:
    """A model with AdamW whose parameters and moments take about so much."""
    width = 1024
    layers = max(1, megabytes * 1_000_000 // (12 * width * (width + 1)))
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    state = {"model": model, "optimizer": optimizer}
    update(state)
    return state


def update(state: Mapping[str, object]) -> None:
    """One step of AdamW on gradients that are drawn."""
    model, optimizer = state["model"], state["optimizer"]
    for parameter in model.parameters():  # type: ignore[attr-defined]
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()  # type: ignore[attr-defined]


def finished(device: str) -> None:
    """Wait for what the device has been given to do."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def seconds(device: str, action: Callable[[], object]) -> float:
    """How long an action takes, the work that it gives the device included."""
    finished(device)
    begin = time.perf_counter()
    action()
    finished(device)
    return time.perf_counter() - begin


class TimeOverError(Exception):
    """The time of the whole check is over."""


@contextmanager
def limit(seconds_left: float) -> Iterator[None]:
    """End what is under way by `TimeOverError`, and the process where even that does not help."""

    def over(*_: object) -> None:
        raise TimeOverError

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds_left)
    faulthandler.dump_traceback_later(seconds_left + 10.0, exit=True)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


def saves(
    device: str, megabytes: int, repeats: int, left_s: Callable[[], float]
) -> list[tuple[str, ...]]:
    """A row for a plain copy and for each policy: stall, its multiple, durable, restore, verify."""
    state = state_of(device, megabytes)
    tensors = [one.detach() for one in state["model"].parameters()]  # type: ignore[attr-defined]
    moments = state["optimizer"].state.values()  # type: ignore[attr-defined]
    tensors += [one for of_one in moments for one in of_one.values() if one.dim()]
    pinned = device.startswith("cuda")
    warm = [torch.zeros_like(one, device="cpu", pin_memory=pinned) for one in tensors]
    copies = []
    for _ in range(repeats + 1):
        update(state)
        copies.append(
            seconds(device, lambda: torch._foreach_copy_(warm, tensors, non_blocking=pinned))
        )
    copy_s = statistics.median(copies[1:])
    plain = ("a plain copy", f"{1e3 * copy_s:.1f}", "1.00", "", "", "", str(repeats))
    rows: list[tuple[str, ...]] = [plain]
    for number, (name, options) in enumerate(POLICIES.items()):
        end_s = time.monotonic() + left_s() / (len(POLICIES) - number)
        with tempfile.TemporaryDirectory(prefix="ettr-gpu-") as place:
            stalls, durable = list[float](), list[float]()
            with RunningCheckpoint(place, state, **options) as checkpoint:  # type: ignore[arg-type]
                checkpoint.save_all(0)
                for step in range(1, repeats + 1):
                    late = time.monotonic() + 3 * statistics.fmean(durable or [0.0]) > end_s
                    if step > FEWEST_REPEATS and late:  # the last save, the restore, the check
                        break
                    update(state)
                    finished(device)
                    begin = time.perf_counter()
                    checkpoint.step(step)
                    finished(device)
                    stalls.append(time.perf_counter() - begin)
                    checkpoint.wait()
                    durable.append(time.perf_counter() - begin)
                checkpoint.save_all(repeats + 1)
            before = [one.clone() for one in tensors]
            for one in tensors:
                one.zero_()
            restore_s = seconds(device, partial(restore, place, state, slot=0))
            same = all(torch.equal(a, b) for a, b in zip(before, tensors, strict=True))
            begin = time.perf_counter()
            bad = verify(place)
            verify_s = time.perf_counter() - begin
            stall_s = statistics.median(stalls)
            rows.append(
                (
                    name,
                    f"{1e3 * stall_s:.1f}",
                    f"{stall_s / copy_s:.2f}",
                    f"{1e3 * statistics.median(durable):.0f}",
                    f"{1e3 * restore_s:.0f}, {'bit for bit' if same else 'DIFFERS'}",
                    f"{1e3 * verify_s:.0f}, {len(bad)} bad",
                    str(len(stalls)),
                )
            )
    return rows


def rank(config_path: Path) -> None:
    """One of two ranks; the second is killed at one step, once."""
    from ettr.elastic import Protection, Timeouts, group_from_env

    config = json.loads(config_path.read_text())
    folder, on_gpu = config_path.parent, config["device"].startswith("cuda")
    guards = {key: config[key] for key in ("parity", "replicas") if key in config}
    group = group_from_env(Protection(**guards), timeouts=Timeouts(60.0, 90.0, 120.0))

    def train(generation: object) -> None:
        slot = generation.slot  # type: ignore[attr-defined]
        n_gpus = torch.cuda.device_count() if on_gpu else 0
        device = f"cuda:{slot % n_gpus}" if n_gpus else "cpu"
        # two ranks on one GPU: NCCL refuses that
        peers = dist.new_group(backend="gloo") if n_gpus == 1 else None
        torch.manual_seed(0)
        state = state_of(device, config["megabytes"])
        model, optimizer = state["model"], state["optimizer"]
        step = generation.recover(model, optimizer)  # type: ignore[attr-defined]
        while step < STEPS:
            if config.get("kill") and slot == 1 and step + 1 == KILLED_STEP:
                note = folder / "killed"
                if not note.exists():
                    note.write_text(str(time.time()))
                    os.kill(os.getpid(), signal.SIGKILL)
            draw = torch.Generator().manual_seed(1000 * step + slot)
            data = torch.randn(8, 1024, generator=draw).to(device)
            optimizer.zero_grad()  # type: ignore[attr-defined]
            model(data).square().mean().backward()  # type: ignore[operator]
            for parameter in model.parameters():  # type: ignore[attr-defined]
                dist.all_reduce(parameter.grad, group=peers)
            with generation.update(step + 1):  # type: ignore[attr-defined]
                optimizer.step()  # type: ignore[attr-defined]
            step += 1
            if step == KILLED_STEP:
                (folder / f"again-{slot}").write_text(str(time.time()))
        digest = hashlib.blake2b(digest_size=16)
        for parameter in model.parameters():  # type: ignore[attr-defined]
            digest.update(parameter.detach().cpu().numpy().data)
        (folder / f"final-{slot}").write_text(digest.hexdigest())

    group.run(train)


def ranks(device: str, megabytes: int, left_s: Callable[[], float]) -> list[tuple[str, ...]]:
    """A row for each guard: whether the end is that of the undisturbed run, and the restart."""
    rows: list[tuple[str, ...]] = []
    undisturbed = ""
    for number, (name, options) in enumerate(GUARDS.items()):
        may_take_s = left_s() / (len(GUARDS) - number)
        with tempfile.TemporaryDirectory(prefix="ettr-gpu-ranks-") as place:
            config = Path(place) / "config.json"
            config.write_text(json.dumps({"device": device, "megabytes": megabytes, **options}))
            command = [
                sys.executable,
                "-c",
                "from ettr.cli.main import main; raise SystemExit(main())",
            ]
            command += ["elastic", "-n", "2", "--spares", "1", "--"]
            command += [sys.executable, str(Path(__file__)), "--rank", str(config)]
            try:
                done = subprocess.run(
                    command, timeout=may_take_s, check=False, capture_output=True, text=True
                )
            except subprocess.TimeoutExpired:
                rows.append((name, f"FAILED, not over after {may_take_s:.0f} s", ""))
                continue
            finals = [path.read_text() for path in sorted(Path(place).glob("final-*"))]
            if done.returncode or len(finals) != len("01"):
                rows.append((name, f"FAILED, exit status {done.returncode}", done.stderr[-300:]))
                continue
            end = ",".join(finals)
            undisturbed = undisturbed or end
            restart = ""
            if (Path(place) / "killed").exists():
                again = max(float(path.read_text()) for path in Path(place).glob("again-*"))
                restart = f"{again - float((Path(place) / 'killed').read_text()):.2f}"
            rows.append((name, "bit for bit" if end == undisturbed else "DIFFERS", restart))
    return rows


def torchtitan(device: str, left_s: Callable[[], float]) -> str:
    """What its own test says on this device, in a sentence."""
    if not device.startswith("cuda"):
        return NOT_MEASURED["torchtitan"]
    if find_spec("torchtitan") is None:
        return "torchtitan: not run, it is not installed."
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "titan"]
    try:
        done = subprocess.run(
            [*command, str(ROOT / "tests" / "adapters")],
            timeout=left_s(),
            check=False,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return "torchtitan: no time was left."
    said = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-300:]
    return f"torchtitan: {said}."


def table(headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """As Markdown."""
    lines = [headers, ("---",) * len(headers), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def sections(device: str, megabytes: int, repeats: int) -> Iterator[str]:
    """The parts of the page, each once it is measured."""
    begin_s = time.monotonic()

    def left_s(until_share: float = 1.0) -> float:
        return max(1.0, until_share * LIMIT_S - (time.monotonic() - begin_s))

    on_gpu = device.startswith("cuda")
    where = torch.cuda.get_device_name() if on_gpu else "the CPU: **not run on a GPU**"
    n_gpus = torch.cuda.device_count() if on_gpu else 0
    backend = "NCCL" if n_gpus > 1 else "gloo" + (", tensors of one GPU" if n_gpus else "")
    yield "# What a GPU shows"
    yield (
        f"`make gpu-check` on {where}; torch {torch.__version__}, a state of {megabytes} MB, "
        f"medians of n."
    )
    yield table(
        ("save", "stall, ms", "of a plain copy", "durable, ms", "restore, ms", "verify, ms", "n"),
        saves(device, megabytes, repeats, partial(left_s, SAVES_SHARE)),
    )
    if not on_gpu:
        yield NOT_MEASURED["saves"]
    yield f"Two ranks under `ettr elastic` ({backend}), the second killed at step {KILLED_STEP}:"
    yield table(
        ("guard", "end, against undisturbed", "killed to first step, s"),
        ranks(device, max(13, megabytes // 16), partial(left_s, SAVES_SHARE + RANKS_SHARE)),
    )
    if n_gpus < len("01"):
        yield NOT_MEASURED["ranks"]
    yield torchtitan(device, left_s)
    yield f"{time.monotonic() - begin_s:.0f} s in all."


def page(device: str, megabytes: int, repeats: int) -> str:
    """Run everything; the page, up to where the time was over."""
    parts = []
    try:
        with limit(LIMIT_S):
            for part in sections(device, megabytes, repeats):
                parts.append(part)
    except TimeOverError:
        parts.append(f"FAILED: not over after {LIMIT_S:.0f} s; what follows was not measured.")
    return "\n\n".join(parts)


def main() -> int:
    """Run the check, on the CPU where there is no GPU; 1 where something differs or failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", help="`cpu` where there is a GPU that is not to be used")
    parser.add_argument(
        "--megabytes", type=int, help="of parameters and moments: 4000 or what fits, on the CPU 26"
    )
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        rank(given.rank)
        return 0
    device = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
    fits = shutil.disk_usage(tempfile.gettempdir()).free // 1_000_000 // COPIES_ON_DISK
    megabytes = given.megabytes or min(4000 if device.startswith("cuda") else 26, fits)
    text = page(device, megabytes, given.repeats)
    print(text)
    if device.startswith("cuda"):
        PAGE.write_text(text + "\n", encoding="utf-8")
    return int("DIFFERS" in text or "FAILED" in text)


if __name__ == "__main__":
    sys.exit(main())
