"""Optimizers of the forms in which others keep their state, each as small as it can be.

What counts is where they keep it: in containers, in attributes, in
packed codes, in numbers of a group, in matrices of another shape, in a basis of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, AdamW, Optimizer

CutGroups = list[dict[str, Any]]
Update = Callable[[Tensor, Tensor, dict[str, Any], dict[str, Any]], None]


class Small(Optimizer):
    """An update of each parameter by its gradient, its moments and the options of its group."""

    def __init__(self, groups: CutGroups, rate: float, update: Update, **options: float) -> None:
        super().__init__(groups, {"lr": rate, **options})
        self._update = update

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, self.state[parameter], group)


def lion(p: Tensor, g: Tensor, s: dict[str, Any], o: dict[str, Any]) -> None:
    """The sign of a mean."""
    mean = s.setdefault("exp_avg", torch.zeros_like(p))
    p.add_(torch.sign(mean * 0.9 + g * 0.1), alpha=-o["lr"] / 10)
    mean.lerp_(g, 0.01)


def lamb(p: Tensor, g: Tensor, s: dict[str, Any], o: dict[str, Any]) -> None:
    """Adam by the ratio of norms; the step is a Python number."""
    s["step"] = s.get("step", 0) + 1
    mean = s.setdefault("exp_avg", torch.zeros_like(p)).lerp_(g, 0.1)
    square = s.setdefault("exp_avg_sq", torch.zeros_like(p)).lerp_(g * g, 0.01)
    update = mean / (square.sqrt() + 1e-6)
    p.add_(update * (p.norm() / (update.norm() + 1e-6)).clamp(max=1.0), alpha=-o["lr"] / s["step"])


def ademamix(p: Tensor, g: Tensor, s: dict[str, Any], o: dict[str, Any]) -> None:
    """A fast and a slow mean; the slow one from the second step on."""
    s["step"] = s.get("step", 0) + 1
    fast = s.setdefault("exp_avg_fast", torch.zeros_like(p)).lerp_(g, 0.1)
    p.add_(fast, alpha=-o["lr"])
    if s["step"] > 1:
        p.add_(s.setdefault("exp_avg_slow", g.clone()).lerp_(g, 0.001), alpha=-o["lr"])


def adan(p: Tensor, g: Tensor, s: dict[str, Any], o: dict[str, Any]) -> None:
    """Keeps the gradient of the step before."""
    before = s.setdefault("previous_grad", g.clone())
    change = s.setdefault("exp_avg_diff", torch.zeros_like(p)).lerp_(g - before, 0.1)
    p.add_(g + change, alpha=-o["lr"])
    before.copy_(g)


def shampoo(p: Tensor, g: Tensor, s: dict[str, Any], o: dict[str, Any]) -> None:
    """One matrix for each dimension."""
    update = g
    for dim in range(p.ndim):
        turned = g.movedim(dim, 0).reshape(p.shape[dim], -1)
        left = s.setdefault(f"precond_{dim}", torch.eye(p.shape[dim], dtype=p.dtype))
        left.add_(turned @ turned.mT)
        update = torch.tensordot(left / left.norm(), update.movedim(dim, 0), 1).movedim(0, dim)
    p.add_(update, alpha=-o["lr"])


def galore(p: Tensor, g: Tensor, s: dict[str, Any], o: dict[str, Any]) -> None:
    """A mean in a basis of few columns, which is kept too."""
    if p.ndim != 2:
        p.add_(g, alpha=-o["lr"])
        return
    if "basis" not in s:
        s["basis"] = torch.linalg.qr(g.float().mT[:, :4] + 1e-3)[0].to(p.dtype).contiguous()
        s["exp_avg"] = torch.zeros(p.shape[0], s["basis"].shape[1], dtype=p.dtype)
    s["exp_avg"].lerp_(g @ s["basis"], 0.1)
    p.add_(s["exp_avg"] @ s["basis"].mT, alpha=-o["lr"])


def codes(p: Tensor, g: Tensor, s: dict[str, Any], o: dict[str, Any]) -> None:
    """A mean as 8-bit codes with a scale for each 64 of them."""
    if "state1" not in s:
        s["state1"] = torch.zeros(p.numel(), dtype=torch.int8)
        s["absmax1"] = torch.zeros(-(-p.numel() // 64))
    n = len(s["absmax1"])
    padded = torch.zeros(64 * n)
    padded[: p.numel()] = s["state1"].float()
    rows = padded.view(n, 64) * s["absmax1"][:, None]
    padded = torch.zeros(64 * n)
    padded[: p.numel()] = g.flatten()
    rows = 0.9 * rows + 0.1 * padded.view(n, 64)
    s["absmax1"].copy_(rows.abs().amax(1) / 127 + 1e-12)
    rounded = (rows / s["absmax1"][:, None]).round()
    s["state1"].copy_(rounded.flatten()[: p.numel()].to(torch.int8))
    p.add_((rounded * s["absmax1"][:, None]).flatten()[: p.numel()].view_as(p), alpha=-o["lr"])


def prodigy(p: Tensor, g: Tensor, s: dict[str, Any], o: dict[str, Any]) -> None:
    """An estimate of the rate that is an option of the group."""
    s.setdefault("p0", p.clone())
    o["d"] = o["d"] + float(g.norm()) * 1e-3
    p.add_(g, alpha=-o["lr"] * o["d"])


def listed(p: Tensor, g: Tensor, s: dict[str, Any], o: dict[str, Any]) -> None:
    """A list of the last gradients."""
    s.setdefault("history", []).append(g.clone())
    p.add_(sum(s["history"][-3:], torch.zeros_like(p)), alpha=-o["lr"])


class Lookahead(Optimizer):
    """Slow weights of its own, every second step, next to the moments of another."""

    def __init__(self, groups: CutGroups, rate: float) -> None:
        self.base = AdamW(groups, rate)
        self.defaults, self.state, self.calls = self.base.defaults, defaultdict(dict), 0
        for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
            setattr(self, name, getattr(self.base, name))

    param_groups = property(lambda self: self.base.param_groups)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """A step of the other; every second one is drawn back."""
        self.base.step()
        self.calls += 1
        if self.calls % 2:
            return
        for group in self.param_groups:
            for p in group["params"]:
                slow = self.state[p].setdefault("slow", p.detach().clone())
                p.copy_(slow.lerp_(p.detach(), 0.5))

    def state_dict(self) -> dict[str, Any]:
        """With the calls counted."""
        return {**self.base.state_dict(), "slow": dict(self.state), "calls": self.calls}


class Sam(Optimizer):
    """Shares the groups of its base; a step is two gradients."""

    def __init__(self, groups: CutGroups, rate: float) -> None:
        super().__init__(groups, {"rho": 0.05, "lr": rate})
        self.base_optimizer = AdamW(self.param_groups, rate)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Up, a gradient there, down again, and a step of the base."""
        assert closure is not None  # noqa: S101
        parameters = [p for group in self.param_groups for p in group["params"]]
        for p in parameters:
            self.state[p]["old"] = p.detach().clone()
            p.add_(p.grad, alpha=0.05)
        with torch.enable_grad():
            closure()
        for p in parameters:
            p.copy_(self.state[p]["old"])
        self.base_optimizer.step()


class Container(Optimizer):
    """One optimizer for each tensor, as torchtitan's for each part; its own state is empty."""

    def __init__(self, groups: CutGroups, rate: float) -> None:
        self.optimizers = [
            AdamW([{**group, "params": [p]}], rate) for group in groups for p in group["params"]
        ]
        super().__init__([p for group in groups for p in group["params"]], {"lr": rate})

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """A step of each."""
        for one in self.optimizers:
            one.step()

    def state_dict(self) -> dict[str, Any]:
        """Of each."""
        return {str(n): one.state_dict() for n, one in enumerate(self.optimizers)}


class Masters(Optimizer):
    """Steps float32 copies of the parameters, which it holds in a list, as Apex does."""

    def __init__(self, groups: CutGroups, rate: float) -> None:
        super().__init__(groups, {"lr": rate})
        self._live = [p for group in self.param_groups for p in group["params"]]
        self.masters = [torch.nn.Parameter(p.detach().float().clone()) for p in self._live]
        self.inner = SGD(self.masters, rate, momentum=0.9)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """A step of the copies, which are copied back."""
        for p, master in zip(self._live, self.masters, strict=True):
            master.grad = None if p.grad is None else p.grad.float()
        self.inner.step()
        for p, master in zip(self._live, self.masters, strict=True):
            p.copy_(master)


class Averaging(AdamW):
    """Keeps a mean of the weights in an attribute of its own that its state dictionary has."""

    def __init__(self, groups: CutGroups, rate: float) -> None:
        super().__init__(groups, rate)
        self.swa = [p.detach().clone() for group in self.param_groups for p in group["params"]]
        self.n_averaged = 0

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """A step, and the mean of the weights moved."""
        super().step()
        self.n_averaged += 1
        live = [p for group in self.param_groups for p in group["params"]]
        for mean, p in zip(self.swa, live, strict=True):
            mean.lerp_(p, 1 / self.n_averaged)

    def state_dict(self) -> dict[str, Any]:
        """With the means."""
        return {**super().state_dict(), "swa": self.swa, "n_averaged": self.n_averaged}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The same."""
        self.swa = [one.clone() for one in state["swa"]]
        self.n_averaged = state["n_averaged"]
        super().load_state_dict({k: state[k] for k in ("state", "param_groups")})


def _small(update: Update, **options: float) -> Callable[[CutGroups, float], Optimizer]:
    return lambda groups, rate: Small(groups, rate, update, **options)


SMALL: dict[str, tuple[Callable[[CutGroups, float], Optimizer], bool]] = {
    "Lion": (_small(lion), False),
    "LAMB": (_small(lamb), False),
    "AdEMAMix": (_small(ademamix), False),
    "Adan": (_small(adan), False),
    "Shampoo": (_small(shampoo), False),
    "GaLore": (_small(galore), False),
    "8-bit codes": (_small(codes), False),
    "Prodigy": (_small(prodigy, d=1.0), False),
    "a list of gradients": (_small(listed), False),
    "Lookahead": (Lookahead, False),
    "SAM": (Sam, True),
    "a container": (Container, False),
    "float32 masters": (Masters, False),
    "a mean of the weights": (Averaging, False),
}
"""Name -> how it is built of groups and a rate, and whether a step needs a closure."""
