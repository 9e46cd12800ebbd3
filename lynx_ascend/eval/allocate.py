"""Bits where they help most: chunk, alpha and widths of all planes of a model under one budget.

A Lagrangian: at a price per bit, each channel takes the width with the least cost plus price, each plane the candidate
that is then cheapest; the price is found by bisection.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lynx_ascend.codec import Calibration, ChannelWidths, PlaneSpec
from lynx_ascend.codec.calibration import PlaneCalibration
from lynx_ascend.errors import ConfigError
from lynx_ascend.eval.costs import WIDTHS, Candidate, Costs

_BISECTIONS = 80
_LOWEST, _HIGHEST = 2.0**-100, 2.0**60


@dataclass(frozen=True)
class Allocation:
    """A calibration, what it is expected to cost, and its bits a value over all planes, without exact rows."""

    calibration: Calibration
    cost: float
    bits: float


def metadata_bits(candidate: Candidate, spec: PlaneSpec, page: int, dim: int) -> float:
    """Bits a value of a tile beside its codes (docs/codec.md, "A tile")."""
    return 32 / page + 16 / candidate.chunk + (8 / dim if spec.token_scale else 0)


def allocate(costs: Costs, specs: dict[tuple[int, str], PlaneSpec], bits: float) -> Allocation:
    """The cheapest choices of at most ``bits`` bits a value.

    Raises ConfigError where even the narrowest widths need more.
    """
    low, high = _LOWEST, _HIGHEST
    if _choose(costs, specs, high).bits > bits:
        raise ConfigError(f"{bits} bits a value are too few for a sign and the metadata of every channel")
    for _ in range(_BISECTIONS):
        middle = (low * high) ** 0.5
        if _choose(costs, specs, middle).bits > bits:
            low = middle
        else:
            high = middle
    return _choose(costs, specs, high)


def _choose(costs: Costs, specs: dict[tuple[int, str], PlaneSpec], price: float) -> Allocation:
    widths = torch.tensor(WIDTHS, dtype=torch.float64)
    planes: dict[tuple[int, str], PlaneCalibration] = {}
    cost = spent = 0.0
    values = 0
    for key, table in costs.planes.items():
        best = _plane(table, widths, price, costs, specs[key])
        planes[key] = PlaneCalibration(best.candidate.chunk, best.candidate.alpha, ChannelWidths(best.widths))
        cost, spent, values = cost + best.cost, spent + best.bits, values + best.widths.numel()
    return Allocation(Calibration(planes), cost, spent / values)


@dataclass(frozen=True)
class _Choice:
    candidate: Candidate
    widths: Tensor
    cost: float
    bits: float


def _plane(table: Tensor, widths: Tensor, price: float, costs: Costs, spec: PlaneSpec) -> _Choice:
    choices = []
    for candidate, cost in zip(costs.candidates, table, strict=True):
        index = (cost + price * widths.view(-1, 1, 1)).argmin(0)
        metadata = metadata_bits(candidate, spec, costs.spec.page, index.shape[1]) * index.numel()
        taken = float(cost.gather(0, index.unsqueeze(0)).sum())
        bits = float(widths[index].sum()) + metadata
        choices.append(_Choice(candidate, widths[index].to(torch.int64), taken, bits))
    return min(choices, key=lambda choice: choice.cost + price * choice.bits)
