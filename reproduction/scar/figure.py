"""The figure: iterations that a failure costs, by what was lost and how it was saved, as SVG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

COLOURS = {
    "partial alone": "#8da0cb",
    "priority 1/8": "#1b7837",
    "round-robin 1/8": "#a6dba0",
    "random 1/8": "#d9d9d9",
}
WIDTH, HEIGHT, ACROSS, LEFT, TOP = 300, 190, 3, 34, 26


@dataclass(frozen=True, slots=True)
class Panel:
    """One experiment: the traditional cost as a line, and bars (value, low, high) by share lost."""

    title: str
    traditional: float
    groups: Mapping[str, Mapping[str, tuple[float, float, float]]]


def write_figure(path: Path, panels: Sequence[Panel], *, claim: str) -> None:
    """Write all panels as one SVG, with the band in which the paper's claim would put a bar."""
    rows = -(-len(panels) // ACROSS)
    width, height = ACROSS * WIDTH + 10, rows * HEIGHT + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="10">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f"<title>Iterations that one failure costs, by share of the parameters lost; "
        f"dashed: traditional checkpoint; shaded: {escape(claim)} less</title>",
    ]
    for index, panel in enumerate(panels):
        parts += _panel(panel, (index % ACROSS) * WIDTH, (index // ACROSS) * HEIGHT)
    x, y = 40, rows * HEIGHT + 22
    for label, colour in COLOURS.items():
        parts.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="{y + 9}">{escape(label)}</text>')
        x += 105
    parts.append(f'<line x1="{x}" y1="{y + 5}" x2="{x + 20}" y2="{y + 5}" {_DASH}/>')
    parts.append(f'<text x="{x + 24}" y="{y + 9}">traditional (full rollback)</text>')
    parts.append(f'<rect x="{x + 170}" y="{y}" width="14" height="10" fill="#fee8c8"/>')
    parts.append(f'<text x="{x + 188}" y="{y + 9}">paper: {escape(claim)} less</text>')
    parts.append(
        f'<text x="40" y="{y + 28}">Iterations that one failure costs, by share of the parameters '
        "lost; mean and 95 % interval. Bars of the first colour restore from a full checkpoint."
        "</text>"
    )
    path.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")


_DASH = 'stroke="#b2182b" stroke-width="1.5" stroke-dasharray="5 3"'


def _panel(panel: Panel, x0: float, y0: float) -> list[str]:
    bars = [bar for group in panel.groups.values() for bar in group.values()]
    top = 1.1 * max([panel.traditional, *(high for _, _, high in bars)], default=1.0)
    bottom = min([0.0, *(1.1 * low for _, low, _ in bars)])
    left, right = x0 + LEFT, x0 + WIDTH - 8
    upper, lower = y0 + TOP, y0 + HEIGHT - 22

    def level(value: float) -> float:
        return lower - (value - bottom) / (top - bottom) * (lower - upper)

    band = level(0.22 * panel.traditional), level(0.05 * panel.traditional)
    parts = [
        f'<text x="{left}" y="{y0 + 16}" font-size="11" font-weight="bold">'
        f"{escape(panel.title)}</text>",
        _box(left, band[0], right - left, band[1] - band[0], "#fee8c8"),
        f'<line x1="{left}" y1="{upper}" x2="{left}" y2="{lower}" stroke="#444"/>',
        f'<line x1="{left}" y1="{level(0):.1f}" x2="{right}" y2="{level(0):.1f}" stroke="#444"/>',
    ]
    for tick in _ticks(bottom, top):
        parts.append(
            f'<text x="{left - 4}" y="{level(tick) + 3:.1f}" text-anchor="end">{tick:g}</text>'
        )
    span = (right - left) / max(1, len(panel.groups))
    for place, (name, group) in enumerate(panel.groups.items()):
        middle = left + (place + 0.5) * span
        parts.append(f'<text x="{middle:.1f}" y="{lower + 13}" text-anchor="middle">{name}</text>')
        wide = 0.8 * span / len(COLOURS)
        for number, (label, (value, low, high)) in enumerate(group.items()):
            x = middle + (number - len(group) / 2) * wide
            ends = sorted((level(value), level(0)))
            parts.append(_box(x, ends[0], wide - 1, ends[1] - ends[0], COLOURS[label]))
            centre = x + (wide - 1) / 2
            parts.append(
                f'<line x1="{centre:.1f}" y1="{level(low):.1f}" x2="{centre:.1f}" '
                f'y2="{level(high):.1f}" stroke="#222"/>'
            )
    y = level(panel.traditional)
    parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" {_DASH}/>')
    return parts


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{colour}"/>'


def _ticks(bottom: float, top: float) -> list[float]:
    """About four round numbers between the ends."""
    rough = (top - bottom) / 4
    for step in (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500):
        if step >= rough:
            break
    first = int(-(-bottom // step))
    return [step * n for n in range(first, int(top // step) + 1)]
