"""A training job as the scenario runs it: steps, saves, and after a requeue goes on from the save.

Called by a batch job with the folder in which it keeps its state and its progress. Its first
attempt does not come to its end: it waits for the failure of its node after some steps.
"""

import os
import sys
import time
from pathlib import Path

from ettr.progress.recorder import ProgressRecorder

STEPS = 330
STEP_S = 0.1
SAVE_EVERY = 50
HELD_AT = 120


def train(folder: Path) -> None:
    """Train to the last step, from the last save if there is one."""
    state = folder / "train.state"
    job = os.environ.get("SLURM_JOB_ID")
    recorder = ProgressRecorder(folder / "progress.jsonl", run="llm-7b", cluster="virt", job=job)
    done = 0
    first = not state.exists()
    if not first:
        begun = time.monotonic()
        done = int(state.read_text())
        recorder.start(done)
        recorder.record("restore", done, time.monotonic() - begun)
    else:
        recorder.start(0)
    for step in range(done + 1, STEPS + 1):
        time.sleep(STEP_S)
        recorder.step(step, STEP_S)
        if step % SAVE_EVERY == 0:
            begun = time.monotonic()
            draft = state.with_suffix(".draft")
            draft.write_text(str(step))
            draft.replace(state)
            recorder.save(step, time.monotonic() - begun)
        while first and step == HELD_AT:
            time.sleep(STEP_S)
    recorder.record("end", STEPS)


if __name__ == "__main__":
    train(Path(sys.argv[1]))
