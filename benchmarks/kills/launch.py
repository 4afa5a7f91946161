"""Parents of ranks that are a script of their own: `python -m kills.launch supervisor|replicas`."""

import os
import subprocess
import sys
import time

WORLD = 4
LOOK_S = 0.01


def supervisor(command: list[str]) -> int:
    """Ranks below ettr's supervisor, with one warm spare."""
    from ettr.elastic import SupervisorOptions, supervise

    # A kill every few seconds: the limit against failing without end would end the run.
    options = SupervisorOptions(spares=1, max_failures=10_000)
    return int(not supervise(command, WORLD, options=options, on_event=print).finished)


def replicas(command: list[str]) -> int:
    """Replicas below torchft's lighthouse; whichever dies is started again at once."""
    os.environ.setdefault("RUST_LOG", "error")
    from torchft.coordination import LighthouseServer

    # Its own defaults are 5 s without a heartbeat and 60 s for joining.
    lighthouse = LighthouseServer(
        bind="127.0.0.1:0",
        min_replicas=1,
        join_timeout_ms=200,
        quorum_tick_ms=20,
        heartbeat_timeout_ms=1000,
    )
    port = lighthouse.address().rsplit(":", 1)[1]
    environment = {**os.environ, "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}"}
    running: dict[int, subprocess.Popen[bytes]] = {}
    while True:
        for slot in range(WORLD):
            if slot not in running or running[slot].poll() is not None:
                mine = environment | {"KILLS_SLOT": str(slot)}
                running[slot] = subprocess.Popen(command, env=mine)
        time.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit({"supervisor": supervisor, "replicas": replicas}[sys.argv[1]](sys.argv[2:]))
