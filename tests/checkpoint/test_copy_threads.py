"""Copies by several threads: every byte arrives, and no error of a helper is lost."""

import threading

import numpy as np
import pytest

pytest.importorskip("torch", reason="the package of checkpoints imports torch")

from ettr.checkpoint.staging import CopyThreads

pytestmark = pytest.mark.torch


def random_pieces(sizes: list[int]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Sources of these lengths, and targets that hold none of their bytes."""
    rng = np.random.default_rng(3)
    sources = [rng.integers(1, 255, size, dtype=np.uint8) for size in sizes]
    return [np.zeros(size, np.uint8) for size in sizes], sources


@pytest.mark.parametrize("helpers", [0, 1, 3])
def test_every_byte_is_there_when_the_call_returns(helpers: int) -> None:
    """In repeated copies, with pieces that are empty, odd and larger than what one thread takes."""
    threads = CopyThreads(helpers)
    sizes = [0, 1, 7, (5 << 20) + 3, *([1 << 20] * 20)]
    for _ in range(5):
        targets, sources = random_pieces(sizes)
        threads.copy(zip(targets, sources, strict=True))
        for target, source in zip(targets, sources, strict=True):
            np.testing.assert_array_equal(target, source)
    threads.close()
    targets, sources = random_pieces(sizes)
    threads.copy(zip(targets, sources, strict=True))  # closed: by the caller alone
    np.testing.assert_array_equal(targets[3], sources[3])


def test_an_error_of_a_helper_reaches_the_caller() -> None:
    """Whichever thread meets it; the caller's own pieces wait until a helper has met it."""
    met = threading.Event()
    caller = threading.get_ident()

    class Target:
        """Fails in a helper, and in the caller waits for that."""

        nbytes = 20 << 20

        def __len__(self) -> int:
            return 2

        def __getitem__(self, _: object) -> "Target":
            return self

        def __setitem__(self, _: object, __: object) -> None:
            if threading.get_ident() != caller:
                met.set()
                raise OSError("a helper failed")
            assert met.wait(60)

    threads = CopyThreads(1)
    large = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (2,), (0,))
    pieces = [(Target(), large)] * 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ettr.checkpoint.staging._ALONE_BYTES", 0)
        with pytest.raises(OSError, match="a helper failed"):
            threads.copy(pieces)  # type: ignore[arg-type]
    threads.close()


def test_lengths_that_differ_are_an_error() -> None:
    """NumPy would repeat a source of one byte over the whole target."""
    with pytest.raises(ValueError, match="1 bytes cannot be copied into room for 3"):
        CopyThreads(0).copy([(np.zeros(3, np.uint8), np.ones(1, np.uint8))])
