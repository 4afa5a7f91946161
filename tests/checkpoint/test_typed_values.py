"""Values of Python as a checked record, without pickle: each comes back as what it was."""

import gzip
import io
import struct
import warnings
import zlib
from collections import Counter, OrderedDict, defaultdict, deque
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest

from ettr.checkpoint import CheckpointError
from ettr.errors import UsageError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import nn  # noqa: E402

from ettr.checkpoint import read_values, rng_state, verify, write_values  # noqa: E402
from ettr.checkpoint.tensors.typed_values import decode, encode  # noqa: E402

SAMPLES = Path(__file__).parent / "samples"


def there_and_back(values, step: int = 7):
    return decode(encode(values, step) + bytes(100))


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
keys = st.text() | st.integers() | st.tuples(st.integers(), st.text())
values = st.recursive(
    plain | st.binary(max_size=200),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4), st.integers(-(2**40), 2**40))
def test_values_come_back_as_what_they_were(given_values, step: int) -> None:
    found = there_and_back(given_values, step)
    assert (found.values, found.step) == (given_values, step)


def test_tensors_and_arrays_come_back_bit_for_bit() -> None:
    tensors = {
        "bf16": torch.randn(3, 5).to(torch.bfloat16),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "none": torch.empty(0, 3),
        "odd": torch.arange(24).reshape(2, 3, 4).transpose(0, 2),
        "bits": torch.tensor([True, False]),
    }
    arrays = {"u32": np.arange(7, dtype=np.uint32), "c": np.ones((2, 2), np.complex64)}
    found = there_and_back({"t": tensors, "a": arrays, "n": np.int64(4), "c": Counter({2: 3})})
    for name, tensor in tensors.items():
        back = found.values["t"][name]
        assert back.dtype == tensor.dtype
        assert torch.equal(back, tensor)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found.values["a"][name], array, strict=True)
    assert found.values["n"] == 4
    assert found.values["c"].most_common() == [(2, 3)]


class Colour(IntEnum):
    RED = 1


class Words(list):
    pass


@pytest.mark.parametrize(
    "value",
    [
        OrderedDict(b=1, a=2),
        Counter({2: 3}),
        defaultdict(list, {"a": [1]}),
        deque([1, 2], maxlen=5),
        {1, 2},
        frozenset({"x"}),
        (1, [2, (3,)]),
        1 - 2j,
        bytearray(b"abc"),
        np.float64(0.1),
        np.array(2.5),
        np.bool_(True),
        float("inf"),
        -0.0,
        10**400,
        {True: 1, 2: "two", None: 3, (1, "x"): 4},
        {"$": "tuple", "of": []},
        torch.Size([2, 3]),
        torch.bfloat16,
        torch.device("cpu"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_keeps_its_type(value) -> None:
    back = there_and_back({"v": value}).values["v"]
    assert type(back) is type(value)
    assert repr(back) == repr(value)


def test_buffers_and_parameters_keep_their_type() -> None:
    parameter = nn.Parameter(torch.ones(2), requires_grad=False)
    back = there_and_back({"b": io.BytesIO(b"abc"), "p": parameter}).values
    assert back["b"].read() == b"abc"
    assert isinstance(back["p"], nn.Parameter)
    assert not back["p"].requires_grad
    turned = torch.tensor([1 + 2j]).conj()
    assert torch.equal(there_and_back({"t": turned}).values["t"], torch.tensor([1 - 2j]))


def test_what_cannot_be_kept_is_refused_by_name() -> None:
    deep: list = []
    for _ in range(100):
        deep = [deep]
    cyclic: dict = {}
    cyclic["self"] = cyclic
    with warnings.catch_warnings(action="ignore"):  # such types are deprecated
        quantised = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)
    refused = [
        ({"a": {"b": object()}}, r"a\.b is a object; .*of an object, its state_dict\(\)"),
        ({"f": torch.nn.Linear}, "f is a type"),
        ({"s": torch.ones(2, 2).to_sparse()}, "s is a tensor of float32 that is sparse"),
        ({"q": quantised}, "q is a tensor of quint8 that is sparse, quantised"),
        ({"m": torch.ones(2, device="meta")}, "m is a tensor of float32 .* without values"),
        ({"o": np.array([object()])}, "o is a ndarray"),
        ({"e": Colour.RED}, "e is a Colour"),
        ({"w": Words([1])}, "w is a Words"),
        ({"d": defaultdict(lambda: 1)}, "d is a defaultdict"),
        ({"deep": deep}, "is nested deeper than 64"),
        ({"c": cyclic}, "is nested deeper than 64"),
        ({"n": 10**5000}, "a number cannot be saved"),
    ]
    for given_values, message in refused:
        with pytest.raises(UsageError, match=f"lrs: .*{message}"):
            encode(given_values, 0, where="lrs: ")
    for damaged in (b"", b"\xff" * 40, encode({"b": b"12345"}, 1)[:-20]):
        with pytest.raises(CheckpointError, match="values: the record is damaged"):
            decode(damaged)


def test_a_file_of_values(tmp_path: Path) -> None:
    path = tmp_path / "values-0"
    write_values(path, {"rng": rng_state(), "at": (1, 2)}, 40)
    found = read_values(path)
    assert (found.step, found.values["at"]) == (40, (1, 2))
    assert torch.equal(found.values["rng"]["torch"], torch.get_rng_state())
    assert [p.name for p in tmp_path.iterdir()] == ["values-0"]
    whole = path.read_bytes()
    for at in range(0, len(whole), 97):
        flipped = bytearray(whole)
        flipped[at] ^= 16
        for damaged in (flipped, whole[:at]):
            path.write_bytes(damaged)
            with pytest.raises(CheckpointError, match="damaged; take the file of an earlier"):
                read_values(path)
    with pytest.raises(CheckpointError, match="cannot read it: No such file"):
        read_values(tmp_path / "none")


def test_a_store_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "slot-0" / "blocks-00000001.bin"
    path.parent.mkdir()
    raw = bytearray(gzip.decompress((SAMPLES / "slot-format-3.bin.gz").read_bytes()))
    raw[8:12] = (9).to_bytes(4, "little")
    length = struct.calcsize("<8sIIQQQQQ") + struct.unpack_from("<8sIIQQQQQ", raw)[6]
    raw[length : length + 4] = zlib.crc32(raw[:length]).to_bytes(4, "little")
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"blocks-00000001.bin: slot file of format 9: this "):
        verify(tmp_path)
