"""Medians per codec, the check of the texts, and the JSON. Pure arithmetic on runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from lynx_ascend.demo.breakdown import breakdown
from lynx_ascend.demo.measure import Run

KS = (1, 32, 64)
LYNX, REFERENCE, BASELINE = "lynx", "lynx-int8", "int8"


@dataclass(frozen=True, slots=True)
class Row:
    """One codec's medians; times in seconds, None where no run has that many tokens. `produced[k]`, `verified[k]`.

    `encode_s`, `decode_anchor_s`: the codec's work; `codec_share`: of both in the produced TT1T, though most of the
    encoding happens while the link is busy. `all_drafted`, `all_accepted`: of all runs together. Medians of the two may
    come from different runs, so only these say what share was accepted.
    """

    codec: str
    runs: int
    ttft: float
    produced: dict[int, float | None]
    verified: dict[int, float | None]
    bytes: int
    drafted: float
    accepted: float
    all_drafted: int
    all_accepted: int
    encode_s: float
    decode_anchor_s: float
    codec_share: float | None


def summarize(codec: str, runs: Sequence[Run]) -> Row:
    """The row of `codec`. `runs` holds at least one of it."""
    own = [run for run in runs if run.codec == codec]
    return Row(
        codec=codec,
        runs=len(own),
        ttft=median(run.ttft for run in own),
        produced={k: _median(run.produced(k) for run in own) for k in KS},
        verified={k: _median(run.verified(k) for run in own) for k in KS},
        bytes=int(median(run.times.transfer.bytes for run in own)),
        drafted=median(run.times.drafted for run in own),
        accepted=median(run.times.accepted for run in own),
        all_drafted=sum(run.times.drafted for run in own),
        all_accepted=sum(run.times.accepted for run in own),
        encode_s=median(run.encode_s for run in own),
        decode_anchor_s=median(run.times.transfer.decode_anchor_s for run in own),
        codec_share=_median(run.codec_s / first if (first := run.produced(1)) else None for run in own),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def rows(runs: Sequence[Run]) -> list[Row]:
    """One row a codec, in the order in which the codecs first appear."""
    return [summarize(codec, runs) for codec in dict.fromkeys(run.codec for run in runs)]


@dataclass(frozen=True, slots=True)
class After:
    """TTkT less TTFT, run by run: what is left when the prefill, the same for all codecs, is taken out. Medians."""

    produced: dict[int, float | None]
    verified: dict[int, float | None]


def after_first(runs: Sequence[Run]) -> dict[str, After]:
    """By codec."""
    return {
        codec: After(
            produced={k: _median(_less(run.produced(k), run.ttft) for run in own) for k in KS},
            verified={k: _median(_less(run.verified(k), run.ttft) for run in own) for k in KS},
        )
        for codec in dict.fromkeys(run.codec for run in runs)
        for own in [[run for run in runs if run.codec == codec]]
    }


def _less(value: float | None, ttft: float) -> float | None:
    return None if value is None else value - ttft


@dataclass(frozen=True, slots=True)
class Difference:
    """The first token at which a repetition's texts differ."""

    repetition: int
    token: int
    lynx: str
    reference: str


def differences(runs: Sequence[Run]) -> list[Difference]:
    """Repetitions whose lynx tokens are not lynx-int8's. Both codecs must be in every repetition."""
    found = []
    by = {(run.codec, run.repetition): run for run in runs}
    for repetition in sorted({run.repetition for run in runs}):
        ours, theirs = by[LYNX, repetition], by[REFERENCE, repetition]
        if ours.token_ids != theirs.token_ids:
            pairs = zip(ours.token_ids, theirs.token_ids, strict=False)
            equal = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
            token = min(len(ours.token_ids), len(theirs.token_ids)) if equal is None else equal
            found.append(Difference(repetition, token, ours.text, theirs.text))
    return found


def to_json(runs: Sequence[Run], link_mbps: float, about: dict[str, Any]) -> dict[str, Any]:
    """The measured figures. `about` (machine, versions, ...) is added beside them."""
    return {
        "text_equal": not differences(runs),
        "link_mbps": link_mbps,
        "prompt_tokens": int(median(run.prompt_tokens for run in runs)),
        "codecs": {row.codec: _codec_json(row) for row in rows(runs)},
        "after_first": {codec: _after_json(after) for codec, after in after_first(runs).items()},
        **about,
        "runs": [_run_json(run) for run in runs],
    }


def _codec_json(row: Row) -> dict[str, Any]:
    return {
        "ttft_s": _round(row.ttft),
        **{f"tt{k}t_produced_s": _round(row.produced[k]) for k in KS},
        **{f"tt{k}t_verified_s": _round(row.verified[k]) for k in KS},
        "bytes": row.bytes,
        "drafted": row.drafted,
        "accepted": row.accepted,
        "encode_s": _round(row.encode_s),
        "decode_anchor_s": _round(row.decode_anchor_s),
        "codec_share_of_tt1t": _round(row.codec_share),
    }


def _after_json(after: After) -> dict[str, Any]:
    return {
        **{f"tt{k}t_produced_s": _round(after.produced[k]) for k in KS},
        **{f"tt{k}t_verified_s": _round(after.verified[k]) for k in KS},
    }


def _run_json(run: Run) -> dict[str, Any]:
    return {
        "codec": run.codec,
        "repetition": run.repetition,
        "prompt_tokens": run.prompt_tokens,
        "ttft_s": _round(run.ttft),
        "produced_s": [_round(at - run.t_request) for at in run.times.produced],
        "verified_s": [_round(at - run.t_request) for at in run.times.verified],
        "answer_s": _round(run.t_answer - run.t_request),
        "anchor_bytes": int(run.times.transfer.anchor_bytes),
        "residual_bytes": int(run.times.transfer.residual_bytes),
        "drafted": run.times.drafted,
        "accepted": run.times.accepted,
        "encode_s": _round(run.encode_s),
        "decode_anchor_s": _round(run.times.transfer.decode_anchor_s),
        "breakdown_s": {span.key: _round(span.seconds) for span in breakdown(run)},
        "token_ids": list(run.token_ids),
        "text": run.text,
    }


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
