"""Speed of the codec on pages far larger than the cache, interleaved with a copy and a plain int4.

All figures are GB/s (10^9 bytes) of the bf16 side, the best of several rounds; every round runs each contender once,
so that a busy machine is busy for all of them. One pass takes the K or V planes of many segments.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from lynx_ascend.codec import K_SPEC, V_SPEC, EncodedPlane, PlaneSpec, cpu, get_codec
from lynx_ascend.codec.base import PlaneShape
from lynx_ascend.codec.pages import PagedPlane

_BLOCK, _HEADS, _DIM, _TOKENS = 128, 8, 128, 2048
_GROUP = 32  # tokens of a channel that share a scale in the int4 (KIVI's K)


@dataclass(frozen=True)
class Segment:
    """One segment in the cache, and its bytes."""

    pages: PagedPlane
    block_ids: torch.Tensor
    spec: PlaneSpec
    encoded: EncodedPlane


class CodecBench:
    """Segments in one large cache of blocks in random order: [blocks, 2, block, heads, dim]."""

    def __init__(self, megabytes: int) -> None:
        block_bytes = 2 * _BLOCK * _HEADS * _DIM * 2
        per_segment = _TOKENS // _BLOCK
        count = max(1, megabytes * 1_000_000 // (block_bytes * per_segment))
        generator = torch.Generator().manual_seed(0)
        cache = torch.empty(count * per_segment, 2, _BLOCK, _HEADS, _DIM, dtype=torch.bfloat16)
        some = torch.randn(16, *cache.shape[1:], generator=generator)
        some = some * some.abs()  # heavy tails and loud channels, as a K cache has them
        some[..., ::17] *= 8
        for i, block in enumerate(cache):
            block.copy_(some[i % 16])
        order = torch.randperm(cache.shape[0], generator=generator)
        self.codec = get_codec("lynx")
        self.segments: list[Segment] = []
        self._sources = [cache[:, 0], cache[:, 1]]
        for i in range(count):
            ids = order[i * per_segment : (i + 1) * per_segment].contiguous()
            for plane, spec in enumerate((K_SPEC, V_SPEC)):
                pages = PagedPlane(cache[:, plane], _DIM)
                self.segments.append(Segment(pages, ids, spec, self._encode_torch_or_cpu(pages, ids, spec)))
        self.bytes = cache.numel() * 2
        self._flat = cache.view(-1)
        self._copy = torch.empty_like(self._flat)

    @property
    def shape(self) -> PlaneShape:
        """The shape of every segment."""
        return PlaneShape(_TOKENS, _HEADS, _DIM, torch.bfloat16)

    def _encode_torch_or_cpu(self, pages: PagedPlane, ids: torch.Tensor, spec: PlaneSpec) -> EncodedPlane:
        encoded = cpu.encode(self.codec, pages, ids, self.shape, spec)
        return encoded or self.codec.encode(pages.gather(ids, 0, _TOKENS), spec)

    def memcpy(self) -> None:
        """A copy of the whole cache, one thread."""
        self._copy.copy_(self._flat)

    def int4(self, segment: Segment) -> None:
        """KIVI's way for K: asymmetric int4 per channel over groups of tokens, two codes a byte, in torch."""
        rows = segment.pages.gather(segment.block_ids, 0, _TOKENS)
        x = rows.view(_TOKENS // _GROUP, _GROUP, _HEADS, _DIM)
        low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
        scale = (high - low) / 15
        codes = ((x - low) / scale.clamp_min(1e-8)).round_().clamp_(0, 15).to(torch.uint8)
        _ = codes[:, : _GROUP // 2] | (codes[:, _GROUP // 2 :] << 4)

    def encode(self, segment: Segment, backend: str, threads: int) -> None:
        """Encode from the pages."""
        if backend == "cpu":
            cpu.encode(self.codec, segment.pages, segment.block_ids, self.shape, segment.spec, threads)
        else:
            self.codec.encode(segment.pages.gather(segment.block_ids, 0, _TOKENS), segment.spec)

    def decode(self, segment: Segment, backend: str, threads: int, full: bool) -> None:
        """Decode into the pages."""
        coded, codec = segment.encoded, self.codec
        residual = coded.residual if full else None
        if backend == "cpu":
            cpu.decode(
                *(codec, segment.pages, segment.block_ids, self.shape, segment.spec, coded.anchor, residual),
                threads=threads,
            )
            return
        values = (
            codec.decode_anchor(self.shape, segment.spec, coded.anchor)
            if residual is None
            else codec.decode_full(self.shape, segment.spec, coded.anchor, residual)
        )
        segment.pages.scatter(segment.block_ids, 0, values)


def run(megabytes: int = 768, rounds: int = 5, threads: tuple[int, ...] = (1, 2)) -> dict[str, Any]:
    """Measure; the keys are those of ``lynx-ascend bench codec --json``. Sets torch's threads while it runs."""
    bench = CodecBench(megabytes)
    few = bench.segments[:8]  # torch is slow, and its temporaries exceed the inner caches anyway
    plane_bytes = _TOKENS * _HEADS * _DIM * 2
    best: dict[tuple[str, ...], float] = {}

    def note(key: tuple[str, ...], amount: int, work: Callable[[], None]) -> None:
        began = time.perf_counter()
        work()
        best[key] = max(best.get(key, 0.0), amount / (time.perf_counter() - began) / 1e9)

    def each(segments: list[Segment], work: Callable[[Segment], None]) -> None:
        for segment in segments:
            work(segment)

    backends = ["torch"] if cpu.extension() is None else ["cpu", "torch"]
    before = torch.get_num_threads()
    try:
        for number in range(rounds + 1):
            if number == 1:
                best.clear()  # the first round touches memory and builds tables
            torch.set_num_threads(1)
            note(("memcpy",), bench.bytes, bench.memcpy)
            note(("int4",), plane_bytes * len(few), lambda: each(few, bench.int4))
            for backend in backends:
                segments = bench.segments if backend == "cpu" else few
                amount = plane_bytes * len(segments)
                for count in threads:
                    torch.set_num_threads(count)
                    for name, work in _operations(bench, backend, count).items():
                        note((backend, name, str(count)), amount, lambda s=segments, w=work: each(s, w))  # type: ignore[misc]
    finally:
        torch.set_num_threads(before)
    return _result(best, backends, threads, bench.bytes, rounds)


def _operations(bench: CodecBench, backend: str, threads: int) -> dict[str, Callable[[Segment], None]]:
    return {
        "encode": lambda s: bench.encode(s, backend, threads),
        "decode_anchor": lambda s: bench.decode(s, backend, threads, full=False),
        "decode_full": lambda s: bench.decode(s, backend, threads, full=True),
    }


def _result(
    best: dict[tuple[str, ...], float], backends: list[str], threads: tuple[int, ...], size: int, rounds: int
) -> dict[str, Any]:
    module = cpu.extension()
    figures = {
        backend: {
            f"{name}_gbps": {str(n): round(best[backend, name, str(n)], 3) for n in threads}
            for name in ("encode", "decode_anchor", "decode_full")
        }
        for backend in backends
    }
    return {
        "machine": machine(),
        "cpu_target": None if module is None else module.target(),
        "pages_bytes": size,
        "rounds": rounds,
        "memcpy_gbps": round(best["memcpy",], 3),
        "int4_torch_encode_gbps": round(best["int4",], 3),
        "backends": figures,
    }


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
