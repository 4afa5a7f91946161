"""How sacct writes durations, TRES, exit codes and states."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ettr.sources.slurm import fields as words


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10-13:27:06", 912426),
        ("1-00:00:00", 86400),
        ("01:02:03", 3723),
        ("02:03", 123),
        ("00:01.500", 1.5),
        ("2-03", 183600),
        ("", None),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("Unknown", None),
    ],
)
def test_durations(text, seconds):
    assert words.duration_s(text) == seconds


@given(st.integers(0, 10**7))
def test_a_duration_written_as_slurm_does_comes_back(seconds):
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    assert words.duration_s(f"{days}-{clock}" if days else clock) == seconds


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("cpu=4,gres/gpu=8,gres/gpu:h100=8", 8),
        ("gres/gpu:a100=2,gres/gpu:h100=1", 3),
        ("gres/gpu:h100=8,gres/gpu=8", 8),
        ("billing=1,cpu=1", 0),
        ("gres/gpumem=40G,cpu=1", 0),
        ("gres/gpu=2K", 2000),
        ("gres/shard=4,gres/gpu=1", 1),
    ],
)
def test_typed_and_untyped_gpus_are_not_added_twice(text, gpus):
    assert words.gpus_of_tres(text) == gpus


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:h100:8(S:0-1)", 8),
        ("gpu:a100:4,gpu:h100:2,nvme:1", 6),
        ("gpu:2", 2),
        ("nvme:1", 0),
        ("gres:gpu:8", 8),
        ("craynetwork:4,gpu:v100:1", 1),
    ],
)
def test_gpus_of_gres(text, gpus):
    assert words.gpus_of_gres(text) == gpus


@pytest.mark.parametrize(
    ("text", "state", "by"),
    [
        ("CANCELLED by 1000", "CANCELLED", "1000"),
        ("CANCELLED+", "CANCELLED", None),
        ("NF", "NODE_FAIL", None),
        ("completed", "COMPLETED", None),
        ("OOM", "OUT_OF_MEMORY", None),
    ],
)
def test_states(text, state, by):
    assert words.state_and_user(text) == (state, by)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (words.state_and_user, "EXPLODED"),
        (words.state_and_user, ""),
        (words.duration_s, "soon"),
        (words.integer, "1.5"),
        (words.integer, "9" * 19),
        (words.exit_code, "a:b"),
    ],
)
def test_what_cannot_be_read_is_refused(parse, text):
    with pytest.raises(ValueError, match=r"is (no|not an?) "):
        parse(text)


def test_exit_codes():
    assert words.exit_code("0:125") == (0, 125)
    assert words.exit_code("3") == (3, None)
    assert words.exit_code("") == (None, None)
