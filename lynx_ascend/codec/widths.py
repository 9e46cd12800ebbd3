"""How many bits of each channel's codes travel in the anchor: most where its error matters most."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lynx_ascend.errors import ConfigError

CODE_BITS = 8
DEFAULT_WIDTH = 4


class ChannelWidths:
    """An immutable width, 1 to 8, for every channel of every head; equal and hashed by content.

    The anchor holds the ``width`` highest bits of a channel's codes, the residual the others. Both ends of a transfer
    hold the same widths: they are part of the layout and never travel inside a tile.
    """

    __slots__ = ("_hash", "_rows", "dim", "heads")

    def __init__(self, widths: Tensor) -> None:
        """Take ``widths``, integers ``[heads, dim]``. Raises ConfigError on any other rank, dtype or value."""
        if widths.ndim != 2 or 0 in widths.shape or widths.is_floating_point() or widths.dtype == torch.bool:
            raise ConfigError(
                f"channel widths are integers [heads, dim], not {widths.dtype} {tuple(widths.shape)}"
            )
        if int(widths.min()) < 1 or int(widths.max()) > CODE_BITS:
            raise ConfigError(f"channel widths are 1 to {CODE_BITS} bits")
        self.heads, self.dim = widths.shape
        self._rows = tuple(tuple(row) for row in widths.tolist())
        self._hash = hash(self._rows)

    @classmethod
    def uniform(cls, heads: int, dim: int, width: int = DEFAULT_WIDTH) -> ChannelWidths:
        """The same width everywhere."""
        return cls(torch.full((heads, dim), width))

    @classmethod
    def parse(cls, rows: object) -> ChannelWidths:
        """Read what ``digits`` writes. Raises ConfigError that names what is off."""
        if not isinstance(rows, list) or not rows or not all(isinstance(row, str) and row for row in rows):
            raise ConfigError("channel widths are a list with one string of digits per head")
        if len({len(row) for row in rows}) > 1 or not all(set(row) <= set("12345678") for row in rows):
            raise ConfigError(
                f"channel widths need a digit from 1 to {CODE_BITS} for each channel of each head"
            )
        return cls(torch.tensor([[int(digit) for digit in row] for row in rows]))

    def digits(self) -> list[str]:
        """One string per head, a digit per channel."""
        return ["".join(map(str, row)) for row in self._rows]

    def row(self, head: int) -> tuple[int, ...]:
        """The widths of ``head``'s channels."""
        return self._rows[head]

    def bits(self, head: int) -> int:
        """The sum of ``head``'s widths: bits of a token in the anchor."""
        return sum(self._rows[head])

    @property
    def values(self) -> Tensor:
        """A fresh uint8 tensor ``[heads, dim]``."""
        return torch.tensor(self._rows, dtype=torch.uint8)

    def slice(self, heads: slice) -> ChannelWidths:
        """The widths of some of the heads, for a rank that owns only these."""
        return ChannelWidths(self.values[heads])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChannelWidths) and self._rows == other._rows

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        rows: Sequence[Sequence[int]] = self._rows
        mean = sum(map(sum, rows)) / (self.heads * self.dim)
        return f"ChannelWidths(heads={self.heads}, dim={self.dim}, mean={mean:.2f})"
