"""A process is seen to end before the kernel has finished with it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ettr.elastic.nodes import LocalProcess


def test_a_killed_process_is_seen_to_end_before_its_status_is_there() -> None:
    code = "import time; room = bytearray(300 << 20); print(flush=True); time.sleep(600)"
    process = LocalProcess([sys.executable, "-c", code], os.environ, "w0", stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"\n"
    assert not process.ending()
    process.kill()
    deadline_s = time.monotonic() + 120
    while not process.ending():
        assert time.monotonic() < deadline_s
    assert process.wait() == -signal.SIGKILL
    assert process.ending()  # gone altogether
    process.close()
    process.close()
    process.stdout.close()


def test_a_process_that_ended_by_itself_or_was_stopped() -> None:
    process = LocalProcess([sys.executable, "-c", "import time; time.sleep(600)"], os.environ, "w0")
    process.send_signal(signal.SIGSTOP)
    deadline_s = time.monotonic() + 120
    while Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert not process.ending()  # a stopped one hangs, it does not end
    process.kill()
    process.wait()
    assert process.ending()
    process.close()
