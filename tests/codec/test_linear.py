from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lynx_ascend.codec import K_SPEC, V_SPEC, CodecSpec, PlaneSpec, get_codec
from lynx_ascend.errors import CodecError

from .planes import integers, laplacian

# name, kind of the plane -> levels of a code, tokens and channels of a group (None: the page's, the head's)
GROUPS = {
    ("int8", "k"): (255, None, 1),
    ("int4", "v"): (15, None, 1),
    ("int8-channel-32", "k"): (255, 32, 1),
    ("int8-token", "v"): (255, 1, None),
    ("int8-token-32", "k"): (255, 1, 32),
    ("int4-channel-64", "k"): (15, 64, 1),
    ("int4-channel-32", "v"): (15, 32, 1),
    ("int4-token", "k"): (15, 1, None),
    ("int4-token-64", "v"): (15, 1, 64),
    ("int4-token-32", "k"): (15, 1, 32),
    ("kivi4", "k"): (15, 32, 1),
    ("kivi4", "latent"): (15, 32, 1),
    ("kivi4", "v"): (15, 1, 32),
}


@settings(max_examples=50, deadline=None)
@given(
    case=st.sampled_from(sorted(GROUPS)),
    tokens=st.integers(1, 300),
    dim=st.sampled_from([1, 5, 40, 80]),
    seed=st.integers(0, 999),
)
def test_error_is_half_a_step_of_the_group(case: tuple[str, str], tokens: int, dim: int, seed: int) -> None:
    (name, kind), plane = case, laplacian(tokens, 2, dim, seed=seed)
    levels, down, across = GROUPS[case]
    spec = PlaneSpec(kind=kind)
    encoded = get_codec(name).encode(plane, spec)
    decoded = get_codec(name).decode_anchor(encoded.shape, spec, encoded.anchor)
    for start in range(0, tokens, down or 256):
        rows = slice(max(start, 4), start + (down or 256))
        for first in range(0, dim, across or dim):
            group = (slice(None), slice(first, first + (across or dim)))
            check(plane[rows][group], decoded[rows][group], levels, per_token=down == 1)


def check(values: Tensor, decoded: Tensor, levels: int, per_token: bool) -> None:
    """Groups run along the channels of a token, or along the tokens, of every head."""
    if not values.numel():
        return
    axis = 2 if per_token else 0
    low, high = values.amin(axis, keepdim=True), values.amax(axis, keepdim=True)
    width = (high - low) * (1 + 2**-9) + values.abs().amax(axis, keepdim=True) * 2**-10
    assert ((decoded - values).abs() <= width / levels / 2 + values.abs() * 2**-20 + 2**-23).all()


def test_bytes_of_a_small_int4_plane() -> None:
    plane = torch.arange(7.0).view(7, 1, 1)
    encoded = get_codec("int4").encode(plane, K_SPEC)
    data = encoded.anchor[64:]
    assert data[:16].view(torch.float32).tolist() == [0, 1, 2, 3]
    assert data[16:20].view(torch.float16).tolist() == [4, 2]  # the sinks stand as row 4
    assert data[20:].tolist() == [0x00, 0x80, 0xF0, 0x00]  # rows 0-3 low, rows 4-6 high: 0, 7.5 -> 8, 15


def test_bytes_of_a_small_plane_per_token() -> None:
    plane = torch.tensor([[0.0, 15, 8], [2, 2, 2], [-1, 29, 1]]).view(3, 1, 3)
    encoded = get_codec("int4-token", CodecSpec(sinks=0)).encode(plane, K_SPEC)
    data = encoded.anchor[64:]
    assert data[:12].view(torch.float16).tolist() == [0, 2, -1, 15, 0, 30]  # minima, then ranges
    assert data[12:].tolist() == [0x00, 0xFF, 0x18, 0x00, 0x00, 0x00]  # tokens 0, 1 low; token 2 high


def test_kivi_groups_tokens_of_k_and_channels_of_v() -> None:
    codec = get_codec("kivi4", CodecSpec(sinks=0))
    plane = torch.zeros(40, 1, 40)
    plane[:32, :, 7], plane[3] = 5.0, 3.0
    k = codec.encode(plane, K_SPEC).anchor[
        64 + 8 * 40 * 4 :
    ]  # behind the flags and the 8 exact rows of the tail
    assert k[:80].view(torch.float16).tolist() == [0] * 7 + [3] + [0] * 32
    v = codec.encode(plane, V_SPEC).anchor[64 + 8 * 40 * 4 :]
    minima = v[: 2 * 32 * 2].view(torch.float16).view(32, 2)
    assert minima[3].tolist() == [3, 3]
    assert minima.sum() == 6


def test_bits_per_value() -> None:
    plane = integers(512, 1, 128, torch.bfloat16)
    for name, size in (("int8", 512 * 128 + 2 * 512), ("int4", 256 * 128 + 2 * 512)):
        encoded = get_codec(name).encode(plane, K_SPEC, first_token=256)
        assert encoded.anchor.numel() == size + 64


@pytest.mark.parametrize("name", ["int8", "int4", "int4-token", "int8-token-32"])
def test_nothing_is_coded_where_the_sinks_are_all(name: str) -> None:
    encoded = get_codec(name).encode(integers(4, 2, 3, torch.float32), K_SPEC)
    assert encoded.anchor.numel() == 2 * (64 + 4 * 3 * 4)


@pytest.mark.parametrize(("name", "unit"), [("int4-channel-32", 32), ("int4-channel-64", 64), ("kivi4", 32)])
def test_tokens_that_fill_no_group_are_exact(name: str, unit: int) -> None:
    plane = laplacian(2 * unit - 1, 2, 40)
    for spec in (K_SPEC, V_SPEC):
        encoded = get_codec(name).encode(plane, spec)
        decoded = get_codec(name).decode_anchor(encoded.shape, spec, encoded.anchor)
        assert torch.equal(decoded[unit:], plane[unit:])
        assert not torch.equal(decoded[:unit], plane[:unit])


def test_groups_must_divide_the_page() -> None:
    with pytest.raises(CodecError, match="64 tokens do not divide a page of 96"):
        get_codec("int4-channel-64", CodecSpec(page=96)).encode(integers(96, 1, 3, torch.float32), K_SPEC)
