from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lynx_ascend.codec import K_SPEC, get_codec

from .planes import integers, laplacian


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(["int8", "int4"]), tokens=st.integers(1, 600), seed=st.integers(0, 999))
def test_error_is_half_a_step(name: str, tokens: int, seed: int) -> None:
    codec, plane = get_codec(name), laplacian(tokens, 2, 5, seed=seed)
    encoded = codec.encode(plane, K_SPEC)
    decoded = codec.decode_anchor(encoded.shape, K_SPEC, encoded.anchor)
    levels = 255 if name == "int8" else 15
    for start in range(0, tokens, 256):
        rows = plane[max(start, 4) : start + 256]
        if not len(rows):
            continue
        width = (rows.amax(0) - rows.amin(0)) * (1 + 2**-9) + rows.abs().amax(0) * 2**-10
        error = (decoded[max(start, 4) : start + 256] - rows).abs()
        assert (error <= width / levels / 2 + rows.abs() * 2**-20 + 2**-23).all()


def test_bytes_of_a_small_int4_plane() -> None:
    plane = torch.arange(7.0).view(7, 1, 1)
    encoded = get_codec("int4").encode(plane, K_SPEC)
    data = encoded.anchor[64:]
    assert data[:16].view(torch.float32).tolist() == [0, 1, 2, 3]
    assert data[16:20].view(torch.float16).tolist() == [4, 2]  # the sinks stand as row 4
    assert data[20:].tolist() == [0x00, 0x80, 0xF0, 0x00]  # rows 0-3 low, rows 4-6 high: 0, 7.5 -> 8, 15


def test_bits_per_value() -> None:
    plane = integers(512, 1, 128, torch.bfloat16)
    for name, size in (("int8", 512 * 128 + 2 * 512), ("int4", 256 * 128 + 2 * 512)):
        encoded = get_codec(name).encode(plane, K_SPEC, first_token=256)
        assert encoded.anchor.numel() == size + 64


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_nothing_is_coded_where_the_sinks_are_all(name: str) -> None:
    encoded = get_codec(name).encode(integers(4, 2, 3, torch.float32), K_SPEC)
    assert encoded.anchor.numel() == 2 * (64 + 4 * 3 * 4)
