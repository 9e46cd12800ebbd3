"""The Triton codec on a CUDA device: its bits against the reference, then its speed beside a copy. Under 4 minutes.

Exits with 1 if a bit is wrong, with 2 if there is no device; fails if a step waits for the device. `--interpret` runs
the same steps in Triton's interpreter on a CPU, with tiny planes, and proves nothing about speed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lynx_ascend.codec import K_SPEC, V_SPEC, ChannelWidths, CodecSpec, PlaneSpec, backends, cuda
from lynx_ascend.codec.lynx import LynxCodec
from lynx_ascend.codec.pages import PagedPlane
from lynx_ascend.codec.segment import PagedSegment

EXAMPLE = "example: python ops/bench/triton_codec.py --tokens 131072 --heads 8 --dim 128 --json"
BLOCK = 16


@dataclass(frozen=True)
class Case:
    """One plane to check."""

    name: str
    dtype: torch.dtype
    dim: int
    spec: PlaneSpec
    center: str = "midrange"
    raw: bool = False


def cases() -> list[Case]:
    """Every dtype, both kinds of planes, masked channels, uneven widths, both centers, a raw tile."""
    bits = torch.full((2, 80), 4)
    bits[1] = torch.arange(80) * 3 % 8 + 1
    widths = ChannelWidths(bits)
    return [
        Case("k bfloat16 128", torch.bfloat16, 128, K_SPEC),
        Case("v bfloat16 128", torch.bfloat16, 128, V_SPEC),
        Case("k float16 80, widths", torch.float16, 80, replace(K_SPEC, widths=widths)),
        Case("v float32 80, widths, mean", torch.float32, 80, replace(V_SPEC, widths=widths), center="mean"),
        Case("k bfloat16 128, a raw tile", torch.bfloat16, 128, K_SPEC, raw=True),
    ]


def place(values: Tensor, device: str) -> PagedSegment:
    """``values`` [tokens, heads, dim] in shuffled blocks of 16 tokens on ``device``."""
    tokens, heads, dim = values.shape
    blocks = -(-tokens // BLOCK)
    ids = torch.randperm(blocks, generator=torch.Generator().manual_seed(0)).to(device)
    pages = PagedPlane(torch.zeros(blocks, BLOCK, heads, dim, dtype=values.dtype, device=device), dim)
    pages.scatter(ids, 0, values.to(device))
    return PagedSegment(pages, ids, 0, tokens)


def plane(tokens: int, heads: int, dim: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Laplacian values [tokens, heads, dim] with one large channel."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(tokens, heads, dim, generator=generator) - 0.5
    values = -u.sign() * torch.log1p(-2 * u.abs().clamp(max=0.4999))
    values[:, :, dim // 3] *= 30
    return values.to(dtype)


def wrong(case: Case, tokens: int, device: str) -> int:
    """How many bytes of the streams and values after decoding differ from the reference on the host."""
    values = plane(tokens, 2, case.dim, case.dtype)
    if case.raw:
        values[tokens // 2, 1, 3] = torch.inf
    codec, segment = LynxCodec(CodecSpec(center=case.center)), place(values, device)
    expected = codec.encode(values, case.spec)
    made = backends.to_host(codec, segment, case.spec, backends.encode_cuda(codec, segment, case.spec))
    count = 0
    for left, right in ((made.anchor, expected.anchor), (made.residual, expected.residual)):
        count += int((left != right).sum()) if left.shape == right.shape else right.numel()
    for residual in (None, expected.residual):
        backends.decode_cuda(codec, segment, case.spec, expected.anchor, residual)
        wanted = (
            codec.decode_anchor(expected.shape, case.spec, expected.anchor)
            if residual is None
            else codec.decode_full(expected.shape, case.spec, expected.anchor, residual)
        )
        # As bytes, so that a NaN equals itself.
        count += int(
            (segment.gather().cpu().contiguous().view(torch.uint8) != wanted.view(torch.uint8)).sum()
        )
    return count


def timed(step: Callable[[], Any], before: Callable[[], Any], device: str) -> float:
    """Seconds of one call, after `before`, which keeps the device busy while the host starts the step."""
    if device == "cpu":
        began = time.perf_counter()
        step()
        return time.perf_counter() - began
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before()
    start.record()
    step()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def speeds(kind: str, spec: PlaneSpec, options: argparse.Namespace, device: str) -> list[dict[str, Any]]:
    """GB/s of bytes read and written, each counted once: medians of interleaved rounds."""
    codec = LynxCodec()
    segment = place(plane(options.tokens, options.heads, options.dim, torch.bfloat16), device)
    values = segment.pages.values
    target, coded = torch.empty_like(values), cuda.encode(codec, segment, spec)
    anchor, residual = coded.anchor, coded.residual
    steps: dict[str, tuple[Callable[[], Any], int]] = {
        "copy": (lambda: target.copy_(values), 2 * values.nbytes),
        "encode": (
            lambda: cuda.encode(codec, segment, spec),
            values.nbytes + anchor.nbytes + residual.nbytes,
        ),
        "decode_anchor": (lambda: cuda.decode(codec, segment, spec, anchor), values.nbytes + anchor.nbytes),
        "decode_full": (
            lambda: cuda.decode(codec, segment, spec, anchor, residual),
            values.nbytes + anchor.nbytes + residual.nbytes,
        ),
    }
    for step, _ in steps.values():  # compiles
        step()
    if device != "cpu":
        torch.cuda.set_sync_debug_mode("error")
        for step, _ in steps.values():
            step()
        torch.cuda.set_sync_debug_mode("default")

    def fill() -> None:
        for _ in range(8):
            target.copy_(values)

    times: dict[str, list[float]] = {step: [] for step in steps}
    for _ in range(options.rounds):
        for name, (step, _) in steps.items():
            times[name].append(timed(step, fill, device))
    rates = {name: size / statistics.median(times[name]) / 1e9 for name, (_, size) in steps.items()}
    return [
        {"plane": kind, "step": name, "gb_s": rate, "of_copy": rate / rates["copy"]}
        for name, rate in rates.items()
    ]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tokens", type=int, default=131072, help="of the measured planes, more than L2 holds"
    )
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=50, help="each runs every step once")
    parser.add_argument("--json", action="store_true", help="one object on stdout instead of a table")
    parser.add_argument("--interpret", action="store_true", help="in Triton's interpreter, on a CPU, tiny")
    return parser.parse_args()


def main() -> int:
    """Check, measure, print."""
    options = arguments()
    if options.interpret:
        os.environ["TRITON_INTERPRET"] = "1"
        options.tokens, options.heads, options.dim, options.rounds = 64, 1, 16, 1
    if not cuda.installed():
        print("triton_codec: install triton (on Linux it comes with torch for CUDA)", file=sys.stderr)
        return 2
    if not options.interpret and not torch.cuda.is_available():
        print("triton_codec: no CUDA device here; --interpret checks the steps on a CPU", file=sys.stderr)
        return 2
    device = "cpu" if options.interpret else "cuda"
    bits = {case.name: wrong(case, 70 if options.interpret else 4140, device) for case in cases()}
    rates = [
        row for kind, spec in (("k", K_SPEC), ("v", V_SPEC)) for row in speeds(kind, spec, options, device)
    ]
    name = "interpreter" if options.interpret else torch.cuda.get_device_name()
    if options.json:
        print(json.dumps({"device": name, "wrong_bytes": bits, "speeds": rates}))
    else:
        print(name)
        for case, count in bits.items():
            print(f"  {case:28} {'equal to the bit' if not count else f'{count} bytes are wrong'}")
        for row in rates:
            print(
                f"  {row['plane']} {row['step']:14} {row['gb_s']:9.1f} GB/s {row['of_copy']:6.0%} of a copy"
            )
    return 1 if any(bits.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
