"""Hot channels: which channels of a plane send their residual together with the anchor."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from lynx_ascend.errors import ConfigError


class HotChannels:
    """An immutable bool mask ``[heads, dim]``; equal and hashed by content.

    The number of hot channels may differ from head to head. Both ends of a transfer hold the same
    mask: it is part of the layout and never travels inside a tile.
    """

    __slots__ = ("_channels", "_hash", "dim", "heads")

    def __init__(self, mask: Tensor) -> None:
        """Take ``mask``, bool ``[heads, dim]``. Raises ConfigError on any other dtype or rank."""
        if mask.dtype != torch.bool or mask.ndim != 2 or 0 in mask.shape:
            raise ConfigError(
                f"hot channels need a bool mask [heads, dim], not {mask.dtype} {tuple(mask.shape)}"
            )
        self.heads, self.dim = mask.shape
        self._channels = tuple(tuple(row.nonzero().flatten().tolist()) for row in mask.cpu())
        self._hash = hash((self.dim, self._channels))

    @classmethod
    def none(cls, heads: int, dim: int) -> HotChannels:
        """Return the mask of ``heads`` x ``dim`` channels of which none is hot."""
        return cls(torch.zeros(heads, dim, dtype=torch.bool))

    @property
    def mask(self) -> Tensor:
        """A fresh bool tensor ``[heads, dim]``."""
        mask = torch.zeros(self.heads, self.dim, dtype=torch.bool)
        for head, channels in enumerate(self._channels):
            mask[head, list(channels)] = True
        return mask

    def channels(self, head: int) -> tuple[int, ...]:
        """The hot channels of ``head``, ascending."""
        return self._channels[head]

    def count(self, head: int) -> int:
        """How many channels of ``head`` are hot."""
        return len(self._channels[head])

    def slice(self, heads: slice) -> HotChannels:
        """The mask of some of the heads, for a rank that owns only these."""
        return HotChannels(self.mask[heads])

    def to_dict(self) -> dict[str, Any]:
        """Plain data: ``{"heads": int, "dim": int, "channels": [[int, ...], ...]}``."""
        return {
            "heads": self.heads,
            "dim": self.dim,
            "channels": [list(channels) for channels in self._channels],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> HotChannels:
        """Undo ``to_dict``. Raises ConfigError that names what is off."""
        try:
            heads, dim, channels = data["heads"], data["dim"], data["channels"]
        except (KeyError, TypeError) as error:
            raise ConfigError("hot channels need the keys heads, dim and channels") from error
        if not all(_is_count(value) and value > 0 for value in (heads, dim)):
            raise ConfigError(f"hot channels need positive heads and dim, not {heads!r} and {dim!r}")
        if not isinstance(channels, (list, tuple)) or len(channels) != heads:
            raise ConfigError(f"hot channels need one list of channels for each of {heads} heads")
        mask = torch.zeros(heads, dim, dtype=torch.bool)
        for head, row in enumerate(channels):
            if not isinstance(row, (list, tuple)) or not all(_is_count(c) and c < dim for c in row):
                raise ConfigError(f"hot channels of head {head} must be a list of integers below {dim}")
            if any(left >= right for left, right in pairwise(row)):
                raise ConfigError(f"hot channels of head {head} must ascend without repeats")
            mask[head, list(row)] = True
        return cls(mask)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HotChannels):
            return NotImplemented
        return self.dim == other.dim and self._channels == other._channels

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        total = sum(len(channels) for channels in self._channels)
        return f"HotChannels(heads={self.heads}, dim={self.dim}, hot={total})"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
