"""One job's story as text."""

from __future__ import annotations

from ettr.attribution.job_history import AttemptStory, JobStory, Observed
from ettr.report.numbers import DASH, duration, moment
from ettr.report.text import wrapped

_NODES_SHOWN = 16


def story_text(story: JobStory) -> str:
    """The job's attempts in order, each with what was seen around its end and the verdict."""
    owner = f", {story.user}" if story.user else ""
    head = f"Job {story.job_id} on {story.cluster}: {story.name or 'unnamed'}{owner}"
    many = len(story.attempts)
    window = (
        f"{many} attempt{'s' if many != 1 else ''}. Events count from "
        f"{duration(story.window.before_s)} before an attempt's end to "
        f"{duration(story.window.after_s)} after it."
    )
    parts = [f"{head}\n{'=' * len(head)}", wrapped(window)]
    parts += [_attempt(place, attempt) for place, attempt in enumerate(story.attempts, 1)]
    return "\n\n".join(parts)


def _attempt(place: int, attempt: AttemptStory) -> str:
    nodes = ", ".join(attempt.nodes[:_NODES_SHOWN]) or "none"
    if len(attempt.nodes) > _NODES_SHOWN:
        nodes += f" and {len(attempt.nodes) - _NODES_SHOWN} more"
    lines = [
        f"Attempt {place}: {attempt.state} ({attempt.where})",
        f"  submitted  {moment(attempt.submit)}",
        f"  ran        {moment(attempt.start)} to {moment(attempt.end)}, "
        f"{duration(attempt.elapsed_s)}, {DASH if attempt.n_gpus is None else attempt.n_gpus} GPUs",
        f"  nodes      {nodes}",
        f"  ended      {attempt.reason}",
    ]
    verdict = attempt.verdict
    if verdict is None:
        lines.append("  verdict    no failure of the infrastructure")
    else:
        lines.append(
            f"  verdict    {verdict.symptom} ({verdict.domain}), node {verdict.node or DASH}, "
            f"confidence {verdict.confidence.value}"
        )
        if len(verdict.causes) > 1:
            lines.append(f"  also       {', '.join(verdict.causes[1:])}")
    lines += [_observed(seen) for seen in attempt.observed]
    return "\n".join(lines)


def _observed(seen: Observed) -> str:
    code = f" {seen.code}" if seen.code else ""
    sign = "+" if seen.offset_s >= 0 else "-"
    text = (
        f"  {sign}{duration(abs(seen.offset_s)):<9} {seen.node or DASH} {seen.check}{code} "
        f"[{seen.role}] {seen.symptom or ''}".rstrip()
    )
    message = " ".join((seen.message or "").split())
    return f"{text}\n             {message or seen.why}\n             {seen.where}"
