"""A run resumed with another model: every difference is named, and what is offered works."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from ettr.checkpoint import CheckpointError, verify
from ettr.errors import UsageError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ettr.checkpoint import RunningCheckpoint, restore  # noqa: E402


class Net(nn.Module):
    def __init__(
        self, *, body: str = "body", extra: bool = False, words: int = 9, tied: bool = False
    ) -> None:
        super().__init__()
        self.emb = nn.Embedding(words, 4)
        setattr(self, body, nn.Linear(4, 4))
        if extra:
            self.extra = nn.Linear(4, 4)
        self.head = nn.Linear(4, words, bias=False)
        if tied:
            self.head.weight = self.emb.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.emb(words)
        for name, layer in self.named_children():
            if name not in ("emb", "head"):
                hidden = hidden + layer(hidden)
        return self.head(hidden)


def built(seed: int, *, average: bool = False, dtype=torch.float32, **options) -> dict:
    torch.manual_seed(seed)
    model = Net(**options).to(dtype)
    state = {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=0.1)}
    return {**state, **({"average": Net(**options)} if average else {})}


def saved(root: Path, **options) -> dict:
    state = built(0, **options)
    state["model"](torch.arange(8)).float().square().mean().backward()
    state["optimizer"].step()
    with RunningCheckpoint(root, state, policy="full") as checkpoint:
        checkpoint.save_all(7)
    return state


def resume(root: Path, state: dict, **options) -> object:
    with RunningCheckpoint(root, state, policy="full") as checkpoint:
        return checkpoint.resume_or_begin(**options)


CHANGES = {
    "added": ({}, {"extra": True}, r"2 tensors were not saved .*\(extra.weight, extra.bias\)"),
    "removed": ({"extra": True}, {}, r"2 saved tensors have no place .*\(extra.bias, extra.wei"),
    "renamed": ({}, {"body": "trunk"}, r"trunk.*body.*give rename=\{'body': 'trunk'\} if"),
    "grown": ({}, {"words": 12}, r"emb.weight: it was saved with shape \[9, 4\] and has \[12, 4"),
    "untied": ({"tied": True}, {}, r"1 tensors were not saved .*\(head.weight\)"),
    "tied": ({}, {"tied": True}, r"\(head.weight, tied to emb.weight now\)"),
    "average added": ({}, {"average": True}, r"give rename=\{'': 'model'\} if they are the same"),
    "average removed": ({"average": True}, {}, r"give rename=\{'model': ''\} if they are the sam"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_named_and_what_is_offered_is_taken(tmp_path: Path, change: str) -> None:
    before, after, words = CHANGES[change]
    old = saved(tmp_path, **before)
    live = built(1, **after)
    values = {name: value.clone() for name, value in live["model"].state_dict().items()}
    with pytest.raises(CheckpointError, match=words) as refusal:
        resume(tmp_path, live)
    message = str(refusal.value)
    assert "intact" not in message, "nothing is damaged"
    assert all(torch.equal(value, values[n]) for n, value in live["model"].state_dict().items())
    offered = re.search(r"rename=(\{'\w*': '\w*'\})", message)
    options = {"rename": ast.literal_eval(offered[1])} if offered else {}
    if not offered or "average" in change:
        options["allow_missing"] = True
    start = resume(tmp_path, live, **options)
    assert (start.step, start.resumed) == (7, True)
    body = after.get("body", "body")
    of_old = {n.replace("body", body): v for n, v in old["model"].state_dict().items()}
    differing = {
        name
        for name, value in live["model"].state_dict().items()
        if name not in of_old or not torch.equal(value, of_old[name])
    }
    if after.get("tied"):
        differing -= {"head.weight"}  # it is emb.weight, and had a value of its own
    assert differing == {n for n in start.report.missing if not n.startswith("average.")}
    for name in start.report.missing[:5]:
        assert name in str(start), "the sentence names it"
    assert verify(tmp_path) == []
    assert resume(tmp_path, live).step == 7, "the next resume needs no option"


def test_moments_of_what_is_new_begin_anew(tmp_path: Path) -> None:
    saved(tmp_path)
    live = built(1, extra=True)
    start = resume(tmp_path, live, allow_missing=True)
    assert start.report.fresh_moments == ("extra.weight", "extra.bias")
    moments = live["optimizer"].state
    for name, parameter in live["model"].named_parameters():
        assert float(moments[parameter]["step"]) == (0 if name.startswith("extra") else 1)


def test_another_type_is_converted_where_that_is_asked_for(tmp_path: Path) -> None:
    old = saved(tmp_path)
    live = built(1, dtype=torch.bfloat16)
    with pytest.raises(CheckpointError, match=r"emb.weight: param was saved as float.*cast=True"):
        resume(tmp_path, live)
    assert resume(tmp_path, live, cast=True).step == 7
    assert torch.equal(live["model"].emb.weight, old["model"].emb.weight.bfloat16())


def test_a_rename_that_fits_nothing_or_two_things_is_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    for rename, words in (
        ({"bodi": "trunk"}, "no saved tensor is called 'bodi'"),
        ({"head": "emb"}, "emb.weight and head.weight would both be emb.weight"),
    ):
        with pytest.raises(UsageError, match=words):
            restore(tmp_path, built(1), rename=rename)
