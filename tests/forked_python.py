"""Python programs as forks of a process that has PyTorch's modules loaded already.

A rank spends three seconds of a core on imports, most of what a test of ranks costs. Here one
process imports them once, and every program is a fork of it: a process of its own with its own pid,
a child of the one that asked for it, to be waited for and killed like any other. For programs that
are `python SCRIPT ...` or `python -c CODE ...`. Linux only.

    with forked_workers():
        supervise([sys.executable, "rank.py"], 4)

As a program it is `ettr` or `torchrun` with forked workers:

    python forked_python.py ettr elastic -n 4 -- python rank.py
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

PRELOADED = (
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.run",
    "torch.distributed.tensor.parallel",
    "ettr.checkpoint.dcp",
    "ettr.checkpoint.resuming",
    "ettr.checkpoint.running_checkpoint",
    "ettr.cli.main",
    "ettr.elastic.agent",
    "ettr.elastic.torchrun",
    "ettr.elastic.abortable_gloo",
    "ettr.progress.recorder",
    "torch._dynamo.backends.debugging",
    "torchdata.stateful_dataloader",
)
_PR_SET_CHILD_SUBREAPER, _CLONE_NEWNET = 36, 0x4000_0000
_REQUEST_BYTES, _POLL_S = 1 << 20, 0.005
_LIBC = ctypes.CDLL(None, use_errno=True)


class ForkedProcess:
    """A child of this process, with what is used here of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end_s = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if end_s is not None and time.monotonic() > end_s:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(_POLL_S)
        return status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class ForkServer:
    """The process that is forked.

    Args:
        connection: to it.
        network: the network namespace of the forks; None: this one.
    """

    def __init__(self, connection: socket.socket, network: str | None = None) -> None:
        self._connection, self._network = connection, network

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        streams: Sequence[int] = (0, 1, 2),
        network: str | None = None,
    ) -> ForkedProcess:
        """Start a program, as the leader of a session.

        Args:
            streams: its standard input, output and errors.
            network: its network namespace; None: that of the server.
        """
        request = {
            "command": [word for word in command[1:] if word != "-u"],
            "environment": dict(environment),
            "folder": str(Path.cwd()),
            "network": network or self._network,
        }
        # The program is a grandchild of the server, which leaves it at once: it becomes ours.
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            message = json.dumps(request).encode()
            socket.send_fds(self._connection, [message], list(streams))
            return ForkedProcess(int(self._connection.recv(32)))
        finally:
            _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 0)


@functools.cache
def fork_server(*modules: str) -> ForkServer:
    """The server of this process, which has loaded `modules` too; it ends with this process."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, __file__, "--serve", str(there.fileno()), *modules]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(command, env=environment, pass_fds=[there.fileno()])
    there.close()

    def end() -> None:
        here.close()
        server.wait()

    atexit.register(end)
    return ForkServer(here)


@contextmanager
def forked_workers(server: ForkServer | None = None) -> Iterator[None]:
    """Supervisors and agents of this process start their workers as forks."""
    from ettr.elastic import agent, nodes
    from ettr.elastic.nodes import LocalProcess
    from ettr.elastic.rendezvous import ENV_WORKER

    forks = server or fork_server()

    class ForkedWorker(ForkedProcess):
        """A fork that is watched as a worker is."""

        ending: Any = LocalProcess.ending
        close: Any = LocalProcess.close

        def __init__(
            self, command: Sequence[str], environment: Mapping[str, str], worker: str
        ) -> None:
            super().__init__(forks.start(command, {**environment, ENV_WORKER: worker}).pid)
            self._stat_fd = os.open(f"/proc/{self.pid}/stat", os.O_RDONLY | os.O_CLOEXEC)

    with ExitStack() as patches:
        for module in (nodes, agent):
            patches.enter_context(patch.object(module, "LocalProcess", ForkedWorker))
        yield


@dataclass(frozen=True)
class Ended:
    """A program that has ended, with what it wrote."""

    status: int
    output: str
    errors: str


def run_together(commands: Sequence[Sequence[str]], folder: Path, *, limit_s: float) -> list[Ended]:
    """Run programs at the same time; when one fails, the others are killed.

    Args:
        folder: for what they write.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes, streams = [], []
    for number, command in enumerate(commands):
        streams.append([folder / f"{name}-{number}.txt" for name in ("output", "errors")])
        with ExitStack() as files:
            opened = [files.enter_context(path.open("wb")).fileno() for path in streams[-1]]
            processes.append(fork_server().start(command, environment, streams=(0, *opened)))
    end_s = time.monotonic() + limit_s
    try:
        while any(process.poll() is None for process in processes):
            failed = any(process.returncode for process in processes)
            if failed or time.monotonic() > end_s:
                break
            time.sleep(_POLL_S)
    finally:
        for process in processes:
            process.kill()
    return [
        Ended(process.wait(), *(path.read_text() for path in written))
        for process, written in zip(processes, streams, strict=True)
    ]


def serve(connection: socket.socket) -> Callable[[], object] | None:
    """Fork for every request; returns the program in a fork, and None once nobody asks any more."""
    while True:
        message, streams, *_ = socket.recv_fds(connection, _REQUEST_BYTES, 3)
        if not message:
            return None
        ready, written = os.pipe()
        between = os.fork()
        if between == 0:
            between = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == between:  # whoever asked for it is its parent from the start
                time.sleep(0.001)
            os.setsid()
            os.write(written, str(os.getpid()).encode())
            connection.close()
            os.close(ready)
            os.close(written)
            return functools.partial(_become, json.loads(message), streams)
        os.waitpid(between, 0)
        connection.send(os.read(ready, 32))
        for fd in (ready, written, *streams):
            os.close(fd)


def _run(program: Callable[[], object]) -> NoReturn:
    """Run it, and end as it stands: taking apart what was loaded costs more than a small rank does.

    Threads are waited for, and what libraries have to do at the end is done.
    """
    status: object = 0
    try:
        program()
    except SystemExit as stop:
        status = stop.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
    except BaseException as error:
        status = 1
        sys.excepthook(type(error), error, error.__traceback__)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status if isinstance(status, int) else bool(status))


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    words = request["command"]
    forks = None
    if words[0] == __file__:  # its workers are forks too, made before it has threads
        forks = _own_server(request["network"])
    if request["network"]:
        _enter_network(request["network"])
    if forks is not None:
        _with_forked_workers(words[1:], forks)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
    else:
        sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
        runpy.run_path(words[0], run_name="__main__")


def _own_server(network: str | None) -> ForkServer:
    """A server forked from this process."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        here.close()
        if (program := serve(there)) is None:
            os._exit(0)
        _run(program)
    there.close()
    return ForkServer(here, network)


def _enter_network(name: str) -> None:
    with Path("/run/netns", name).open() as namespace:
        if _LIBC.setns(namespace.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")


def _with_forked_workers(words: Sequence[str], forks: ForkServer) -> None:
    """Be `ettr` or `torchrun`."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler
    from torch.distributed.run import main as torchrun

    from ettr.cli.main import main as ettr

    handler = subprocess_handler.SubprocessHandler
    popen: Any = handler._popen

    def start(own: Any, command: Sequence[str], environment: Mapping[str, str]) -> Any:
        if "--no-python" in words:
            return popen(own, command, environment)
        return forks.start(command, environment)

    sys.argv = list(words)
    with forked_workers(forks), patch.object(handler, "_popen", start):
        programs: dict[str, Any] = {"ettr": ettr, "torchrun": torchrun}
        programs[words[0]]()


def preload(modules: Sequence[str]) -> None:
    """Import, and build what is built only once: a step is made, after which no thread is left."""
    gc.disable()  # nothing of this is garbage
    import torch

    from ettr.elastic import process_group

    torch.set_num_threads(1)
    for name in (*PRELOADED, *modules):
        with suppress(ImportError):  # an extra may be missing
            importlib.import_module(name)
    process_group.warm_up()
    before = sorted(Path("/proc/self/task").iterdir())
    process_group.rehearse()  # after which a fork that collects garbage copies nothing loaded
    gc.enable()
    assert sorted(Path("/proc/self/task").iterdir()) == before, "a fork would miss other threads"


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        preload(sys.argv[3:])
        program = serve(socket.socket(fileno=int(sys.argv[2])))
        if program is not None:
            _run(program)
    else:
        preload(())
        _run(functools.partial(_with_forked_workers, sys.argv[1:], _own_server(None)))
