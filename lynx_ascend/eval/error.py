"""How far a codec's KV, attention and next tokens are from those of the exact KV (the paper's table 3, and KL)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lynx_ascend.eval.coded import code
from lynx_ascend.eval.model import AttentionCall, EvalModel, Kv
from lynx_ascend.eval.samples import Sample
from lynx_ascend.eval.subjects import Subject


@dataclass
class Ratio:
    """A relative error that adds up over planes and samples: sqrt(sum of squared errors / sum of squares)."""

    error: float = 0.0
    size: float = 0.0

    def add(self, found: Tensor, exact: Tensor) -> None:
        """Count one more tensor."""
        self.error += float((found - exact).square().sum(dtype=torch.float64))
        self.size += float(exact.square().sum(dtype=torch.float64))

    @property
    def value(self) -> float:
        """The error relative to the exact values."""
        return float((self.error / self.size) ** 0.5) if self.size else 0.0


@dataclass
class Stage:
    """What one state of the KV (the anchor alone, or all of it) does."""

    k: Ratio = field(default_factory=Ratio)
    v: Ratio = field(default_factory=Ratio)
    attention: Ratio = field(default_factory=Ratio)
    kl: list[Tensor] = field(default_factory=list)
    agreed: list[Tensor] = field(default_factory=list)


@dataclass
class Errors:
    """One codec over all samples."""

    bits_anchor: list[float] = field(default_factory=list)
    bits_total: list[float] = field(default_factory=list)
    full: Stage = field(default_factory=Stage)
    anchor: Stage | None = None

    def figures(self) -> dict[str, float]:
        """The keys of ``--json``. KL in nats a position; its standard error takes positions for independent."""
        found = {"bits_anchor": _mean(self.bits_anchor), "bits_total": _mean(self.bits_total)}
        for suffix, stage in (("", self.full), ("_anchor", self.anchor)):
            if stage is None:
                continue
            kl = torch.cat(stage.kl)
            found |= {
                f"k_error{suffix}": stage.k.value,
                f"v_error{suffix}": stage.v.value,
                f"attention_error{suffix}": stage.attention.value,
                f"kl{suffix}": float(kl.mean()),
                f"kl_standard_error{suffix}": float(kl.std() / len(kl) ** 0.5) if len(kl) > 1 else 0.0,
                f"top1_agreement{suffix}": float(torch.cat(stage.agreed).float().mean()),
            }
        return found


def measure(
    model: EvalModel,
    found: Sequence[Sample],
    subjects: Sequence[Subject],
    *,
    step: Callable[[], None] = lambda: None,
) -> dict[str, Errors]:
    """Errors per subject. Queries, attention and logits are those of each sample's ``next`` tokens.

    ``step`` is called after each (sample, subject).
    """
    results = {subject.name: Errors() for subject in subjects}
    for sample in found:
        kv, _ = model.prefill(sample.context)
        with torch.no_grad(), model.record_attention() as calls:
            logits = model.resume(kv, sample.next)
        for subject in subjects:
            coded = code(kv, subject.codec, subject.specs)
            errors = results[subject.name]
            errors.bits_anchor.append(coded.bits_anchor)
            errors.bits_total.append(coded.bits_total)
            _compare(model, sample, kv, coded.full, logits, calls, errors.full)
            if coded.anchor is not None:
                errors.anchor = errors.anchor or Stage()
                _compare(model, sample, kv, coded.anchor, logits, calls, errors.anchor)
            step()
    return results


def divergence(exact: Tensor, found: Tensor) -> Tensor:
    """KL(exact || found) of the distributions of two logits ``[..., vocabulary]``, nats, ``[...]``."""
    p, q = exact.log_softmax(-1), found.log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1)


def _compare(
    model: EvalModel,
    sample: Sample,
    exact: Kv,
    found: Kv,
    logits: Tensor,
    calls: Iterable[AttentionCall],
    stage: Stage,
) -> None:
    for layer, call in enumerate(calls):
        stage.k.add(found.keys[layer], exact.keys[layer])
        stage.v.add(found.values[layer], exact.values[layer])
        stage.attention.add(call.again(found.keys[layer], found.values[layer]), call.output)
    with torch.no_grad():
        other = model.resume(found, sample.next)
    stage.kl.append(divergence(logits, other))
    stage.agreed.append(logits.argmax(-1) == other.argmax(-1))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
