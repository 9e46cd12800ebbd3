"""Bits where they help most: chunk, alpha and widths of all planes of a model under one budget.

A Lagrangian: at a price per bit, each channel takes the width with the least cost plus price, each plane the candidate
that is then cheapest; the price is found by bisection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lynx_ascend.codec import Calibration, ChannelWidths, PlaneShape, PlaneSpec, get_codec
from lynx_ascend.codec.bitplanes import GROUP
from lynx_ascend.codec.calibration import PlaneCalibration
from lynx_ascend.errors import ConfigError
from lynx_ascend.eval.costs import WIDTHS, Costs

Key = tuple[int, str]  # layer, plane

_BISECTIONS = 80
_LOWEST, _HIGHEST = 2.0**-100, 2.0**60


@dataclass(frozen=True)
class Allocation:
    """A calibration, the KL it is expected to cost, and its bits a value over all planes.

    ``bits`` count everything in a bfloat16 sequence of the length asked for; ``long_bits`` leave out its exact rows and
    what a short last page or chunk has in scales: what long sequences come to.
    """

    calibration: Calibration
    cost: float
    bits: float
    long_bits: float


def allocate(costs: Costs, specs: Mapping[Key, PlaneSpec], bits: float, tokens: int) -> Allocation:
    """The cheapest choices of at most ``bits`` bits a value in sequences of ``tokens`` tokens.

    Raises ConfigError where even the narrowest widths need more.
    """
    fixed = {key: _fixed_bits(costs, specs[key], table, tokens) for key, table in costs.planes.items()}

    def at(price: float) -> Allocation:
        return _choose(costs, specs, fixed, _coded_share(costs, tokens), price)

    low, high = _LOWEST, _HIGHEST
    if (least := at(high).bits) > bits:
        raise ConfigError(
            f"{bits} bits a value are too few: exact rows, scales and signs of {tokens} tokens take {least:.2f}"
        )
    for _ in range(_BISECTIONS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if at(middle).bits > bits else (low, middle)
    return at(high)


def _coded_share(costs: Costs, tokens: int) -> float:
    recent = min(tokens, costs.spec.recent)
    return (tokens - recent) // GROUP * GROUP / tokens


def _fixed_bits(costs: Costs, spec: PlaneSpec, table: Tensor, tokens: int) -> list[float]:
    """Bits a value beside the codes, per candidate: what a plane takes at width 1, less that bit."""
    heads, dim = table.shape[2:]
    codec = get_codec("lynx", costs.spec)
    shape = PlaneShape(tokens, heads, dim, torch.bfloat16, recent=min(tokens, costs.spec.recent))
    narrow = ChannelWidths.uniform(heads, dim, 1)
    return [
        8
        * codec.anchor_bytes(shape, replace(spec, chunk=choice.chunk, alpha=choice.alpha, widths=narrow))
        / (tokens * heads * dim)
        - _coded_share(costs, tokens)
        for choice in costs.candidates
    ]


def _choose(
    costs: Costs,
    specs: Mapping[Key, PlaneSpec],
    fixed: Mapping[Key, list[float]],
    share: float,
    price: float,
) -> Allocation:
    widths = torch.tensor(WIDTHS, dtype=torch.float64)
    planes: dict[Key, PlaneCalibration] = {}
    cost = spent = long = 0.0
    values = 0
    for key, table in costs.planes.items():
        best = _plane(table, widths, price, fixed[key], share)
        choice, count, spec = costs.candidates[best.candidate], best.widths.numel(), specs[key]
        planes[key] = PlaneCalibration(choice.chunk, choice.alpha, ChannelWidths(best.widths))
        cost, spent, values = cost + best.cost, spent + best.bits, values + count
        scales = 32 / costs.spec.page + 16 / choice.chunk + (8 / table.shape[3] if spec.token_scale else 0)
        long += float(best.widths.sum()) + scales * count
    return Allocation(Calibration(planes), cost, spent / values, long / values)


@dataclass(frozen=True)
class _Choice:
    candidate: int
    widths: Tensor
    cost: float
    bits: float


def _plane(table: Tensor, widths: Tensor, price: float, fixed: list[float], share: float) -> _Choice:
    """The candidate of a plane that is cheapest at this price; its bits are of one token of all heads."""
    choices = []
    for candidate, cost in enumerate(table):
        index = (cost + price * share * widths.view(-1, 1, 1)).argmin(0)
        bits = float(widths[index].sum()) * share + fixed[candidate] * index.numel()
        taken = float(cost.gather(0, index.unsqueeze(0)).sum())
        choices.append(_Choice(candidate, widths[index].to(torch.int64), taken, bits))
    return min(choices, key=lambda choice: choice.cost + price * choice.bits)
