"""Which values of a tile share a minimum and a range. Knows shapes; nothing of codes or bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Grouping:
    """Groups of ``size`` consecutive tokens of one channel, or of ``size`` consecutive channels of one token.

    Args:
        along: what a group runs along.
        size: how many share a range, the last group what is left; None: the whole tile (its tokens, its channels).
    """

    along: Literal["tokens", "channels"]
    size: int | None = None

    def shape(self, tokens: int, dim: int) -> tuple[int, int]:
        """How many groups a tile of ``tokens`` by ``dim`` has along its tokens and along its channels."""
        if self.along == "tokens":
            return self._count(tokens), dim
        return tokens, self._count(dim)

    def extremes(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Minimum and maximum of each group of ``values``, ``[..., tokens, dim]``, both ``[..., *shape]``."""
        axis = self._axis
        parts = [values] if self.size is None else values.split(self.size, axis)
        low, high = (
            torch.cat([extreme(part, axis, keepdim=True) for part in parts], axis)
            for extreme in (torch.amin, torch.amax)
        )
        return low, high

    def spread(self, ranges: Tensor, tokens: int, dim: int) -> Tensor:
        """What each value's group holds: ``ranges``, ``[..., *shape]``, that broadcast to ``[..., tokens, dim]``."""
        if self.size is None:
            return ranges
        axis, length = self._axis, tokens if self.along == "tokens" else dim
        return ranges.repeat_interleave(self.size, axis).narrow(axis, 0, length)

    @property
    def _axis(self) -> int:
        return -2 if self.along == "tokens" else -1

    def _count(self, length: int) -> int:
        return 1 if self.size is None else -(-length // self.size)
