"""Which slot files of another world are superseded, against a mask of every element."""

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ettr.checkpoint.slots.durable_io import slot_folder
from ettr.checkpoint.slots.format import HEADER_BYTES
from ettr.checkpoint.slots.layout import BlockSpec, Component, SlotLayout, TensorSpec
from ettr.checkpoint.slots.reader import open_slot, slot_names, superseded
from ettr.checkpoint.slots.writer import SlotWriter

SHAPE = (6, 4)
Box = tuple[tuple[int, int], tuple[int, int]]


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    """Offsets and sizes of a box that is not empty."""
    begins = [draw(st.integers(0, n - 1)) for n in SHAPE]
    sizes = [draw(st.integers(1, n - b)) for n, b in zip(SHAPE, begins, strict=True)]
    return (begins[0], begins[1]), (sizes[0], sizes[1])


def written(root: Path, slot: str, held: list[Box], *, saved: int | None = None) -> SlotWriter:
    """A slot file of these boxes, of which the first `saved` have a record."""
    spec = TensorSpec("w", SHAPE, (Component("param", "float32"),))
    layout = SlotLayout((spec,), tuple(BlockSpec(0, *box) for box in held))
    writer = SlotWriter.create(slot_folder(root, slot), layout)
    writer.begin_round()
    blocks = list(range(len(held) if saved is None else saved))
    for block in blocks:
        record = bytearray(HEADER_BYTES + layout.payload_bytes(block))
        writer.write(block, 1, memoryview(record))
    writer.commit(blocks)
    writer.close()
    return writer


def left_out(root: Path) -> set[str]:
    """Slots of which a file is superseded."""
    with ExitStack() as stack:
        slots = [stack.enter_context(open_slot(root, name)) for name in slot_names(root)]
        return {path.parent.name for path in superseded(slots)}


def mask(held: list[Box]) -> np.ndarray:
    seen = np.zeros(SHAPE, bool)
    for (r, c), (n, m) in held:
        seen[r : r + n, c : c + m] = True
    return seen


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    old=st.lists(boxes(), min_size=1, max_size=3, unique=True),
    new=st.lists(st.lists(boxes(), min_size=1, max_size=4, unique=True), min_size=1, max_size=2),
)
def test_superseded_are_those_that_others_cover(old: list[Box], new: list[list[Box]]) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        written(root, "old", old)
        for number, held in enumerate(new):
            written(root, f"new{number}", held)
        others = [held for held in new if set(held) != set(old)]
        covered = bool((mask([b for held in others for b in held]) | ~mask(old)).all())
        assert ("slot-old" in left_out(root)) == (bool(others) and covered)


WHOLE: Box = ((0, 0), SHAPE)
HALVES: list[Box] = [((0, 0), (3, 4)), ((3, 0), (3, 4))]


def test_only_what_was_saved_supersedes(tmp_path: Path) -> None:
    written(tmp_path, "old", [WHOLE])
    written(tmp_path, "new", HALVES, saved=1)
    assert left_out(tmp_path) == set()
    written(tmp_path, "new", HALVES)
    assert left_out(tmp_path) == {"slot-old"}


def test_a_file_made_later_in_the_same_slot_was_not_seen(tmp_path: Path) -> None:
    """The old owner's file counts no more; that of whoever opened the slot again does."""
    written(tmp_path, "a", [WHOLE])
    written(tmp_path, "b", HALVES)
    assert left_out(tmp_path) == {"slot-a"}
    written(tmp_path, "a", [WHOLE])
    with ExitStack() as stack:
        slots = [stack.enter_context(open_slot(tmp_path, name)) for name in ("a", "b")]
        # each stands against what was there before it: b against a's first, a's second against b
        assert {path.name for path in superseded(slots)} == {"blocks-00000001.bin"}
        assert {path.parent.name for path in superseded(slots)} == {"slot-a", "slot-b"}


def test_replicas_do_not_supersede_each_other(tmp_path: Path) -> None:
    written(tmp_path, "0", [WHOLE])
    written(tmp_path, "1", [WHOLE])
    assert left_out(tmp_path) == set()
