"""The training run of the example: steps of a minute, a checkpoint every half an hour.

Called by a batch job with the folder in which it keeps its state and its progress. After a requeue
it goes on from the last checkpoint. A fault of one of its nodes makes it hang, as a collective
does whose peer has died, or ends it with the exit code on which Slurm requeues.
"""

import os
import random
import sys
import time
from pathlib import Path

from ettr.progress.recorder import ProgressRecorder

RUN = "pretrain-8b"
N_STEPS = 1060
STEP_S = 60.0
SAVE_EVERY = 30
SAVE_S = 75.0
SET_UP_S = 240.0
RESTORE_S = 90.0
# the loader waits for storage at these steps, so many seconds
STALLS = {200: 420.0, 640: 780.0}


def train(folder: Path) -> None:
    """Train to the last step, from the last checkpoint if there is one."""
    job = os.environ["SLURM_JOB_ID"]
    cluster = os.environ["SLURM_CLUSTER_NAME"]
    recorder = ProgressRecorder(folder / "progress.jsonl", run=RUN, cluster=cluster, job=job)
    checkpoint, fault = folder / "checkpoint", folder / "faults" / job
    time.sleep(SET_UP_S)
    done = int(checkpoint.read_text()) if checkpoint.exists() else 0
    recorder.start(done, SET_UP_S)
    if done:
        time.sleep(RESTORE_S)
        recorder.restore(done, RESTORE_S)
    for step in range(done + 1, N_STEPS + 1):
        begun = time.time()
        time.sleep(STEP_S * random.Random(step).uniform(0.97, 1.03))
        _suffer(fault)
        recorder.step(step, time.time() - begun)
        if step in STALLS:
            time.sleep(STALLS[step])
            recorder.stall(step, STALLS[step])
        if step % SAVE_EVERY == 0:
            begun = time.time()
            time.sleep(SAVE_S)
            _suffer(fault)
            draft = checkpoint.with_suffix(".draft")
            draft.write_text(str(step))
            draft.replace(checkpoint)
            recorder.save(step, time.time() - begun)
    recorder.end(N_STEPS)


def _suffer(fault: Path) -> None:
    """Hang or end, if a node of this job has failed."""
    if fault.exists() and (effect := fault.read_text()):
        fault.unlink()
        if effect == "hang":
            time.sleep(100_000)
        sys.exit(int(effect))


if __name__ == "__main__":
    train(Path(sys.argv[1]))
