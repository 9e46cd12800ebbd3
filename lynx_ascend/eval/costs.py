"""What every choice of chunk, alpha and width would cost: sensitivity times squared error, per channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lynx_ascend.codec import ChannelWidths, CodecSpec, PlaneSpec, get_codec, ops
from lynx_ascend.codec.segment import PagedSegment
from lynx_ascend.codec.widths import CODE_BITS
from lynx_ascend.eval.model import EvalModel
from lynx_ascend.eval.samples import Sample
from lynx_ascend.eval.sensitivity import fisher

WIDTHS = tuple(range(1, CODE_BITS + 1))


@dataclass(frozen=True)
class Candidate:
    """Settings of a plane beside the widths."""

    chunk: int
    alpha: float


class Costs:
    """Expected KL, nats summed over all next tokens seen, by (layer, plane): float64 ``[candidates, 8, heads, dim]``.

    Args:
        candidates: what to choose from.
        spec: the codec's settings; only coded tokens count, exact rows cost nothing.
    """

    def __init__(self, candidates: Sequence[Candidate], spec: CodecSpec) -> None:
        self.candidates = tuple(candidates)
        self.spec = spec
        self.planes: dict[tuple[int, str], Tensor] = {}

    def add(self, layer: int, name: str, plane: Tensor, sensitivity: Tensor, base: PlaneSpec) -> None:
        """Count one plane, ``[tokens, heads, dim]``, of one sample."""
        found = torch.stack(
            [
                self._errors(plane, sensitivity, replace(base, chunk=choice.chunk, alpha=choice.alpha))
                for choice in self.candidates
            ]
        )
        known = self.planes.get((layer, name))
        self.planes[layer, name] = found if known is None else known + found

    def _errors(self, plane: Tensor, sensitivity: Tensor, spec: PlaneSpec) -> Tensor:
        """float64 ``[8, heads, dim]``: half the weighted squared error of the anchor at each width."""
        codec = get_codec("lynx", self.spec)
        heads, dim = plane.shape[1:]
        segment = PagedSegment.of(plane, min(self.spec.recent, plane.shape[0]))
        decoded = torch.empty_like(plane)
        target = PagedSegment.of(decoded, segment.recent)
        rows = []
        for width in WIDTHS:
            wide = replace(spec, widths=ChannelWidths.uniform(heads, dim, width))
            ops.decode(target, codec, wide, ops.encode(segment, codec, wide).anchor)
            error = decoded.sub_(plane).square_().mul_(sensitivity)
            rows.append(error.sum(0, dtype=torch.float64) / 2)
        return torch.stack(rows)


def measure_costs(
    model: EvalModel,
    samples: Sequence[Sample],
    candidates: Sequence[Candidate],
    base: Callable[[int, str], PlaneSpec],
    spec: CodecSpec,
    *,
    draws: int = 2,
    seed: int = 0,
    step: Callable[[], None] = lambda: None,
) -> Costs:
    """The costs of all planes over the samples. ``step`` is called after each sample."""
    costs, generator = Costs(candidates, spec), torch.Generator().manual_seed(seed)
    for sample in samples:
        kv, _ = model.prefill(sample.context)
        weights = fisher(model, kv, sample.next, draws=draws, generator=generator)
        for (layer, name, plane), (_, _, weight) in zip(kv.planes(), weights.planes(), strict=True):
            costs.add(layer, name, plane, weight, base(layer, name))
        step()
    return costs
