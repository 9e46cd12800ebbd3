"""Where the time of one request went: consecutive spans whose sum is its verified TT64T."""

from __future__ import annotations

from dataclasses import dataclass

from lynx_ascend.demo.measure import Run


@dataclass(frozen=True, slots=True)
class Span:
    """`key` is its name in the JSON, `about` what a reader sees."""

    key: str
    about: str
    seconds: float


def breakdown(run: Run, k: int = 64) -> list[Span]:
    """The spans of a run up to its k-th verified token; empty if it has fewer tokens or did not draft.

    They follow each other without a gap; one that ended before its predecessor lasts 0 s.
    """
    end = run.verified(k)
    first = run.verified(1)
    started = run.times.verify_started
    if end is None or first is None or started is None:
        return []
    seen = run.times.transfer
    marks = [
        ("prefill", "prefill, first token", run.ttft),
        ("subscribe", "subscribe", seen.t_subscribed - run.t_request),
        ("anchor", "encode and send the anchor", seen.t_anchor_done - run.t_request),
        ("decode", "decode the anchor", seen.t_anchor_applied - run.t_request),
        (
            "residual",
            f"wait for the residual ({run.times.drafted} drafts meanwhile)",
            seen.t_residual_done - run.t_request,
        ),
        ("refine", "decode the rest", seen.t_full_applied - run.t_request),
        ("step", "end of the step under way", started - run.t_request),
        ("verify", "verify", first),
        ("rest", f"tokens up to the {k}th", end),
    ]
    spans, at = [], 0.0
    for key, about, mark in marks:
        mark = min(max(mark, at), end)  # drafts that reach k make the spans behind verification empty
        spans.append(Span(key, about, mark - at))
        at = mark
    return spans


def median_breakdown(runs: list[Run], k: int = 64) -> list[Span]:
    """The breakdown of the run whose verified TTkT is the (lower) median: medians of spans would not add up."""
    timed = sorted((end, index) for index, run in enumerate(runs) if (end := run.verified(k)) is not None)
    if not timed:
        return []
    return breakdown(runs[timed[(len(timed) - 1) // 2][1]], k)
