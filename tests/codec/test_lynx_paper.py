"""The paper's constants, read literally: against a chunk computed by hand, and what differs from ``lynx``."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from lynx_ascend.codec import K_SPEC, V_SPEC, CodecSpec, PlaneSpec, get_codec

from .planes import laplacian, same_bits, uneven

LEVELS = {"lynx-paper": 120, "lynx-paper-127": 127}
NAMES = sorted(LEVELS)

pytestmark = pytest.mark.parametrize("name", NAMES)


def ramp() -> torch.Tensor:
    """One chunk of one channel: 0 to 1 but for a cluster at 1/4, which pulls the mean below the middle."""
    values = torch.full((32,), 0.25)
    values[:9] = torch.arange(9) / 8
    return values.view(32, 1, 1)


@pytest.mark.parametrize("alpha", [0.5, 4.0])
def test_a_chunk_by_hand(name: str, alpha: float) -> None:
    plane, spec = ramp(), PlaneSpec(alpha=alpha)
    codec = get_codec(name)
    encoded = codec.encode(plane, spec)
    gamma, mu_code, sigma_code = encoded.anchor[64:68], int(encoded.anchor[68]), int(encoded.anchor[69])
    assert gamma.view(torch.float16).tolist() == [0, 1]
    assert mu_code == round(255 * float(plane.mean()))
    mu, sigma = mu_code / 255, 2 ** (-sigma_code / 32)
    assert sigma * 2 ** (-1 / 32) < 1 - mu <= sigma
    anchor = codec.decode_anchor(encoded.shape, spec, encoded.anchor).flatten().tolist()
    full = codec.decode_full(encoded.shape, spec, encoded.anchor, encoded.residual).flatten().tolist()
    for x, early, final in zip(plane.flatten().tolist(), anchor, full, strict=True):
        u = (x - mu) / sigma
        m = round(LEVELS[name] * math.log1p(alpha * abs(u)) / math.log1p(alpha))
        m = min(m, 120)
        a = (m + 7) >> 4
        for got, magnitude in ((final, m), (early, 16 * a or 3)):
            level = math.expm1(magnitude / LEVELS[name] * math.log1p(alpha)) / alpha
            assert got == pytest.approx(math.copysign(level, u) * sigma + mu, abs=1e-5)


def test_the_extreme_of_a_chunk_is_kept_by_120_levels_only(name: str) -> None:
    plane = ramp()
    codec = get_codec(name)
    encoded = codec.encode(plane, PlaneSpec(alpha=4.0))
    lost = 1 - codec.decode_full(encoded.shape, PlaneSpec(alpha=4.0), encoded.anchor, encoded.residual).max()
    assert lost > 0.05 if name == "lynx-paper-127" else lost < 0.02


def test_sinks_are_exact_only_where_asked_for(name: str) -> None:
    plane = laplacian(256, 1, 8)
    assert get_codec(name).spec.sinks == 0
    for sinks in (0, 4):
        codec = get_codec(name, CodecSpec(sinks=sinks))
        encoded = codec.encode(plane, K_SPEC)
        decoded = codec.decode_full(encoded.shape, K_SPEC, encoded.anchor, encoded.residual)
        assert same_bits(decoded[:4], plane[:4]) == (sinks == 4)


def test_settings_of_lynx_change_nothing(name: str) -> None:
    plane = laplacian(300, 2, 8)
    expected = get_codec(name).encode(plane, K_SPEC)
    for spec in (V_SPEC, replace(K_SPEC, widths=uneven(2, 8)), replace(K_SPEC, chunk=256)):
        encoded = get_codec(name, CodecSpec(sinks=0, center="midrange")).encode(plane, spec)
        assert torch.equal(encoded.anchor, expected.anchor)
        assert torch.equal(encoded.residual, expected.residual)


def test_small_values_keep_their_sign(name: str) -> None:
    plane = torch.linspace(-1, 1, 32).view(32, 1, 1)
    codec = get_codec(name)
    encoded = codec.encode(plane, K_SPEC)
    middle = codec.decode_anchor(encoded.shape, K_SPEC, encoded.anchor).flatten()[14:18]
    center = float(encoded.anchor[68]) / 255 * 2 - 1
    assert ((middle - center).sign() == (plane.flatten()[14:18] - center).sign()).all()
