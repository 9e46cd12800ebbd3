from __future__ import annotations

import torch

from lynx_ascend.codec import K_SPEC, get_codec

from .planes import integers, laplacian, same_bits


def test_bfloat16_travels_as_it_is_special_values_included() -> None:
    plane = laplacian(70, 2, 5, torch.bfloat16)
    plane[3, 1] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-40])
    codec = get_codec("bf16")
    encoded = codec.encode(plane, K_SPEC)
    assert encoded.anchor.numel() == 2 * plane.numel()
    assert encoded.residual.numel() == 0
    assert same_bits(codec.decode_anchor(encoded.shape, K_SPEC, encoded.anchor), plane)


def test_other_dtypes_are_rounded() -> None:
    plane = integers(40, 1, 3, torch.float32) * 1.001
    codec = get_codec("bf16")
    encoded = codec.encode(plane, K_SPEC)
    decoded = codec.decode_anchor(encoded.shape, K_SPEC, encoded.anchor)
    assert same_bits(decoded, plane.bfloat16().float())


def test_float16_stays_finite_where_bfloat16_rounds_up() -> None:
    plane = torch.tensor([65504.0, -65504.0, float("inf"), -float("inf"), 1.0]).half().view(5, 1, 1)
    codec = get_codec("bf16")
    encoded = codec.encode(plane, K_SPEC)
    assert same_bits(codec.decode_anchor(encoded.shape, K_SPEC, encoded.anchor), plane)
