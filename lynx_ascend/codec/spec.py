"""What both ends agree on before any byte travels: the settings of the codec and of each plane."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lynx_ascend.codec.widths import DEFAULT_WIDTH, ChannelWidths
from lynx_ascend.errors import ConfigError

CHUNKS = (32, 64, 128, 256)
CENTERS = ("midrange", "mean")
KINDS = ("k", "v", "latent")
LEVELS = 112  # 7 * 16: the extreme of a chunk is then exact in the anchor alone
ALPHA_RANGE = (1e-3, 256.0)
RECENT = 16


@dataclass(frozen=True)
class PlaneSpec:
    """How one plane is quantized.

    Args:
        chunk: consecutive tokens that share a center and a scale; 32, 64, 128 or 256. The last may be shorter.
        token_scale: whether a power of 2^(1/4) per (token, head) is taken out first (V planes).
        alpha: strength of the companding; used as float32.
        widths: how many bits of each channel travel in the anchor; None: 4 everywhere.
        kind: what the plane holds, ``k``, ``v`` or ``latent``: some baselines treat K and V differently.
    """

    chunk: int = 32
    token_scale: bool = False
    alpha: float = 0.5
    widths: ChannelWidths | None = None
    kind: str = "k"

    def __post_init__(self) -> None:
        if self.chunk not in CHUNKS:
            raise ConfigError(f"chunk is {self.chunk!r}; use one of {CHUNKS}")
        if not isinstance(self.token_scale, bool):
            raise ConfigError(f"token_scale is {self.token_scale!r}; use true or false")
        low, high = ALPHA_RANGE
        if not isinstance(self.alpha, (int, float)) or not math.isfinite(self.alpha):
            raise ConfigError(f"alpha is {self.alpha!r}; use a number from {low} to {high}")
        if not low <= self.alpha <= high:
            raise ConfigError(f"alpha is {self.alpha}; use a number from {low} to {high}")
        if self.widths is not None and not isinstance(self.widths, ChannelWidths):
            raise ConfigError(f"widths is a {type(self.widths).__name__}; use ChannelWidths or None")
        if self.kind not in KINDS:
            raise ConfigError(f"kind is {self.kind!r}; use one of {KINDS}")

    def slice(self, heads: slice) -> PlaneSpec:
        """The spec of some heads of the plane."""
        return self if self.widths is None else replace(self, widths=self.widths.slice(heads))

    def anchor_bits(self, head: int, dim: int) -> int:
        """Bits of one token of ``head`` in the anchor's codes."""
        return DEFAULT_WIDTH * dim if self.widths is None else self.widths.bits(head)


@dataclass(frozen=True)
class CodecSpec:
    """What all planes of a model share.

    Args:
        page: tokens that share a minimum and a range (paper: 256); a multiple of every chunk in use.
        levels: magnitudes of a code; 112.
        sinks: tokens at the start of the sequence that travel exact; below the smallest chunk.
        recent: tokens at the end of a prompt that travel exact: the next tokens attend to them most.
        center: the encoder's choice of a chunk's center, ``midrange`` or ``mean`` (the paper's).
            Decoders need not know it.
    """

    page: int = 256
    levels: int = LEVELS
    sinks: int = 4
    recent: int = RECENT
    center: str = "midrange"

    def __post_init__(self) -> None:
        if not isinstance(self.page, int) or self.page < CHUNKS[0] or self.page % CHUNKS[0]:
            raise ConfigError(f"page is {self.page!r}; use a multiple of {CHUNKS[0]}")
        if self.levels != LEVELS:
            raise ConfigError(f"levels is {self.levels!r}; the format has {LEVELS}")
        if not isinstance(self.sinks, int) or not 0 <= self.sinks < CHUNKS[0]:
            raise ConfigError(f"sinks is {self.sinks!r}; use 0 to {CHUNKS[0] - 1}")
        if not isinstance(self.recent, int) or not 0 <= self.recent <= self.page:
            raise ConfigError(f"recent is {self.recent!r}; use 0 to {self.page}")
        if self.center not in CENTERS:
            raise ConfigError(f"center is {self.center!r}; use one of {CENTERS}")


K_SPEC = PlaneSpec(chunk=32)
V_SPEC = PlaneSpec(chunk=64, token_scale=True, kind="v")
LATENT_SPEC = PlaneSpec(chunk=32, kind="latent")
