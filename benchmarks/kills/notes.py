"""What a rank leaves behind for the driver and the measurement, readable after a SIGKILL."""

import json
import mmap
import os
import time
from pathlib import Path

PHASES = ("starting", "computing", "vote", "update", "save", "regrouping")


class Notes:
    """One process's lines, its place (slot -> pid), and what it is doing, as one mapped byte."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines = (folder / f"log-{os.getpid()}.jsonl").open("a", buffering=1)
        path = folder / f"phase-{os.getpid()}"
        path.write_bytes(b"\0")
        with path.open("r+b") as file:
            self._phase = mmap.mmap(file.fileno(), 1)
        self._ready = False

    def phase(self, name: str) -> None:
        """From here on the process is doing this."""
        self._phase[0] = PHASES.index(name)

    def holds(self, slot: int) -> None:
        """This process has the slot: kills of the slot go to it."""
        aside = self.folder / f".rank-{slot}-{os.getpid()}"
        aside.write_text(str(os.getpid()))
        aside.replace(self.folder / f"rank-{slot}")

    def line(self, event: str, **more: object) -> None:
        """One line of JSON with the time."""
        line = {"event": event, "time_s": time.time(), "pid": os.getpid(), **more}
        self._lines.write(json.dumps(line) + "\n")

    def step(self, slot: int, step: int, loss: float, generation: int, **more: object) -> None:
        """A training step is done."""
        self.line("step", slot=slot, step=step, loss=loss, generation=generation, **more)
        if not self._ready:
            self._ready = True
            (self.folder / f"ready-{slot}").touch()


def phase_of(folder: Path, pid: int) -> str:
    """What a process was doing last."""
    path = folder / f"phase-{pid}"
    return PHASES[path.read_bytes()[0]] if path.exists() else "starting"


def lines_of(folder: Path) -> list[dict]:
    """Every process's lines in the order of their times; a torn last line is passed over."""
    found = []
    for path in folder.glob("log-*.jsonl"):
        for text in path.read_text().split("\n")[:-1]:
            found.append(json.loads(text))
    return sorted(found, key=lambda line: line["time_s"])
