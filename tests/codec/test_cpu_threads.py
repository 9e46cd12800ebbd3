"""The C++ codec's threads: kept from call to call, shared by callers, anew after a fork."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from lynx_ascend.codec import K_SPEC, V_SPEC, PlaneSpec, cpu, get_codec
from lynx_ascend.codec.segment import PagedSegment

from .planes import laplacian, same_bits

pytestmark = pytest.mark.skipif(cpu.extension() is None, reason="the C++ codec is not built")


def round_trip(spec: PlaneSpec, threads: int, seed: int = 0) -> None:
    codec, plane = get_codec("lynx"), laplacian(1100, 3, 64, torch.bfloat16, seed)
    expected = codec.encode(plane, spec)
    encoded = cpu.encode(codec, PagedSegment.of(plane), spec, threads)
    assert encoded is not None
    assert torch.equal(encoded.anchor, expected.anchor)
    assert torch.equal(encoded.residual, expected.residual)
    out = torch.zeros_like(plane)
    assert cpu.decode(codec, PagedSegment.of(out), spec, expected.anchor, expected.residual, 0, threads)
    assert same_bits(out, codec.decode_full(expected.shape, spec, expected.anchor, expected.residual))


@pytest.mark.parametrize("spec", [K_SPEC, V_SPEC], ids=["k", "v"])
@pytest.mark.parametrize("threads", [1, 2, 5, 1000])
def test_any_number_of_threads(spec, threads):
    round_trip(spec, threads)


def test_several_callers_at_once():
    with ThreadPoolExecutor(4) as callers:
        work = [callers.submit(round_trip, K_SPEC, 1 + seed % 3, seed) for seed in range(12)]
        for one in work:
            one.result(60)


def test_the_child_of_a_fork():
    """It has none of its parent's threads, which therefore must not be waited for."""
    round_trip(K_SPEC, 3)
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # torch's own threads do not survive a fork
    try:
        child = multiprocessing.get_context("fork").Process(target=round_trip, args=(K_SPEC, 3))
        child.start()
        child.join(60)
        if child.is_alive():
            child.kill()
            child.join()
        assert child.exitcode == 0
    finally:
        torch.set_num_threads(torch_threads)
