"""What a backend prints stays out of the standard output, which may be a JSON document."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from threading import Thread
from types import ModuleType

from joblib import register_parallel_backend
from joblib._parallel_backends import ThreadingBackend

ray, util, bridge = ModuleType("ray"), ModuleType("ray.util"), ModuleType("ray.util.joblib")
ray.is_initialized = lambda: "running" in sys.argv
ray.init = lambda **given: print("begins", given)
ray.shutdown = lambda: print("last words")
bridge.register_ray = lambda: register_parallel_backend("ray", ThreadingBackend)
sys.modules.update({"ray": ray, "ray.util": util, "ray.util.joblib": bridge})

from ettr.sim.compiled import on_backend, results_of

def task(n):
    print("warns")
    return n * n

with on_backend("ray"):
    found = results_of(task, [(2,), (3,)], workers=2)
    # as a thread of Ray's does, when a worker dies
    listener = Thread(target=print, args=("a worker died",))
    listener.start()
    listener.join()
print(found)
"""


@pytest.mark.parametrize("is_running", [False, True])
def test_a_backend_prints_next_to_the_output_and_ends_only_if_it_began_here(is_running: bool):
    words = ["running"] if is_running else []
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[4, 9]\n"
    begins = "begins {'log_to_driver': False}"  # what its own processes print stays there
    said = [line in done.stderr for line in ("warns", "a worker died", begins, "last words")]
    assert said == [True, True, not is_running, not is_running]
