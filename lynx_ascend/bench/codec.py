"""Speed of the codec on pages far larger than the cache, interleaved with a copy and a plain int4.

All figures are GB/s (10^9 bytes) of the bf16 side, the best of several rounds; every round runs each contender once,
so that a busy machine is busy for all of them. One pass takes the K or V planes of many segments. No tokens are recent:
all but the sinks are coded.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lynx_ascend.codec import K_SPEC, V_SPEC, ChannelWidths, EncodedPlane, PlaneSpec, cpu, get_codec
from lynx_ascend.codec import backends as codec_backends
from lynx_ascend.codec.pages import PagedPlane
from lynx_ascend.codec.segment import PagedSegment

_BLOCK, _HEADS, _DIM, _TOKENS = 128, 8, 128, 2048
_PLANE_BYTES = _TOKENS * _HEADS * _DIM * 2
_MIXED = (8, 6, 5, 5, 4, 4, 4, 4, 4, 4, 3, 3, 3, 3, 2, 2)  # a mean of 4, as a calibration spends it
_GROUP = 32  # tokens of a channel that share a scale in the int4 (KIVI's K)


@dataclass(frozen=True)
class Coded:
    """One segment in the cache, and its bytes."""

    place: PagedSegment
    spec: PlaneSpec
    encoded: EncodedPlane


@dataclass(frozen=True)
class Contender:
    """One piece of work in every round. ``amount``: bytes of the bf16 side."""

    key: tuple[str, ...]
    threads: int
    amount: int
    work: Callable[[], object]

    def gbps(self) -> float:
        """Do it once and tell how fast."""
        began = time.perf_counter()
        self.work()
        return self.amount / (time.perf_counter() - began) / 1e9


class CodecBench:
    """Segments in one large cache of blocks in random order.

    ``rows``: ``[blocks, 2, block, heads, dim]``. ``packed``: ``[blocks, heads, 2, block * dim]``, as vLLM's CPU
    attention has it for AMX: pairs of channels of 16 tokens together in K, pairs of tokens of 16 channels in V.
    ``widths``: ``default``, or ``mixed`` in each head.
    """

    def __init__(self, megabytes: int, layout: str = "rows", widths: str = "default") -> None:
        per_segment = _TOKENS // _BLOCK
        count = max(1, megabytes * 1_000_000 // (2 * _TOKENS * _HEADS * _DIM * 2))
        generator = torch.Generator().manual_seed(0)
        shape = (2, _BLOCK, _HEADS, _DIM) if layout == "rows" else (_HEADS, 2, _BLOCK * _DIM)
        cache = torch.empty(count * per_segment, *shape, dtype=torch.bfloat16)
        places = (None, None) if layout == "rows" else _packed_places()
        planes = [
            PagedPlane(cache.select(1 if place is None else 2, i), _DIM, place)
            for i, place in enumerate(places)
        ]
        some = torch.randn(16 * _BLOCK, _HEADS, _DIM, generator=generator)
        some = some * some.abs()  # heavy tails and loud channels, as a K cache has them
        some[..., ::17] *= 8
        for pages in planes:
            pages.scatter(torch.arange(16), 0, some)
        for i in range(16, len(cache)):
            cache[i].copy_(cache[i % 16])
        order = torch.randperm(len(cache), generator=generator)
        self.codec = get_codec("lynx")
        channels = None if widths == "default" else _mixed_widths(generator)
        specs = [replace(spec, widths=channels) for spec in (K_SPEC, V_SPEC)]
        self.segments: list[Coded] = []
        for ids in order.split(per_segment):
            for pages, spec in zip(planes, specs, strict=True):
                where = PagedSegment(pages, ids, 0, _TOKENS)
                self.segments.append(Coded(where, spec, codec_backends.encode(self.codec, where, spec)))
        self._flat = cache.view(-1)
        self._copy = torch.empty_like(self._flat)
        self.bytes = cache.numel() * 2

    def contenders(self, threads: tuple[int, ...]) -> list[Contender]:
        """What a round runs, in its order. Torch gets a few segments: it is slow, and its temporaries exceed the inner
        caches anyway."""
        few = self.segments[:8]
        found = [
            Contender(("memcpy",), 1, self.bytes, lambda: self._copy.copy_(self._flat)),
            Contender(("int4",), 1, _PLANE_BYTES * len(few), lambda: _each(few, _int4)),
        ]
        for backend in backends():
            segments = self.segments if backend == "cpu" else few
            for count in threads:
                for name, work in self._operations(backend, count).items():
                    key = (backend, name, str(count))
                    found.append(
                        Contender(key, count, _PLANE_BYTES * len(segments), partial(_each, segments, work))
                    )
        return found

    def _operations(self, backend: str, threads: int) -> dict[str, Callable[[Coded], object]]:
        codec = self.codec

        def decode(coded: Coded, residual: Tensor | None) -> None:
            place, spec, anchor = coded.place, coded.spec, coded.encoded.anchor
            if backend == "cpu":
                cpu.decode(codec, place, spec, anchor, residual, threads=threads)
            elif residual is None:
                place.scatter(codec.decode_anchor(place.shape, spec, anchor))
            else:
                place.scatter(codec.decode_full(place.shape, spec, anchor, residual))

        def encode(coded: Coded) -> None:
            if backend == "cpu":
                cpu.encode(codec, coded.place, coded.spec, threads)
            else:
                codec.encode(coded.place.gather(), coded.spec)

        return {
            "encode": encode,
            "decode_anchor": lambda coded: decode(coded, None),
            "decode_full": lambda coded: decode(coded, coded.encoded.residual),
        }


def backends() -> list[str]:
    """What codes planes here: ``cpu`` if it was built, and ``torch``."""
    return ["torch"] if cpu.extension() is None else ["cpu", "torch"]


def run(
    megabytes: int = 768,
    rounds: int = 5,
    threads: tuple[int, ...] = (1, 2),
    layout: str = "rows",
    widths: str = "default",
) -> dict[str, Any]:
    """Measure; the keys are those of ``lynx-ascend bench codec --json``. Sets torch's threads while it runs."""
    bench = CodecBench(megabytes, layout, widths)
    contenders = bench.contenders(threads)
    best: dict[tuple[str, ...], float] = {}
    before = torch.get_num_threads()
    try:
        for number in range(rounds + 1):
            if number == 1:
                best.clear()  # the first round touches memory and builds tables
            for contender in contenders:
                torch.set_num_threads(contender.threads)
                best[contender.key] = max(best.get(contender.key, 0.0), contender.gbps())
    finally:
        torch.set_num_threads(before)
    module = cpu.extension()
    return {
        "machine": machine(),
        "cpu_target": None if module is None else module.target(),
        "layout": layout,
        "widths": widths,
        "pages_bytes": bench.bytes,
        "rounds": rounds,
        "memcpy_gbps": round(best["memcpy",], 3),
        "int4_torch_encode_gbps": round(best["int4",], 3),
        "backends": {
            backend: {
                f"{name}_gbps": {str(n): round(best[backend, name, str(n)], 3) for n in threads}
                for name in ("encode", "decode_anchor", "decode_full")
            }
            for backend in backends()
        },
    }


def _each(segments: list[Coded], work: Callable[[Coded], object]) -> None:
    for segment in segments:
        work(segment)


def _int4(coded: Coded) -> None:
    """KIVI's way for K: asymmetric int4 per channel over groups of tokens, two codes a byte, in torch."""
    x = coded.place.gather().reshape(_TOKENS // _GROUP, _GROUP, _HEADS, _DIM)
    low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
    scale = (high - low) / 15
    codes = ((x - low) / scale.clamp_min(1e-8)).round_().clamp_(0, 15).to(torch.uint8)
    _ = codes[:, : _GROUP // 2] | (codes[:, _GROUP // 2 :] << 4)


def _mixed_widths(generator: torch.Generator) -> ChannelWidths:
    """Every head has the same number of channels of each width, in an order of its own."""
    row = torch.tensor(_MIXED).repeat(_DIM // len(_MIXED))
    return ChannelWidths(torch.stack([row[torch.randperm(_DIM, generator=generator)] for _ in range(_HEADS)]))


def _packed_places() -> tuple[Tensor, Tensor]:
    token, channel = torch.arange(_BLOCK).view(-1, 1), torch.arange(_DIM)
    k = (token // 16 * _DIM + channel // 2 * 2) * 16 + token % 16 * 2 + channel % 2
    v = (channel // 16 * _BLOCK + token // 2 * 2) * 16 + channel % 16 * 2 + token % 2
    return k.flatten(), v.flatten()


def machine() -> str:
    """The processor's name."""
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
