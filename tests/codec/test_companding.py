from __future__ import annotations

import hashlib
import math

import pytest
import torch

from lynx_ascend.codec.companding import Companding, companding, thresholds
from lynx_ascend.codec.spec import ALPHA_RANGE

CPU = torch.device("cpu")
ALPHAS = (*ALPHA_RANGE, 0.1, 0.5, 1.0, 2.0, 4.0, 16.0)


def values(alpha: float) -> torch.Tensor:
    """Both signs: a random sweep, every threshold with its neighbours, the extremes, the smallest."""
    exact = thresholds(float(torch.tensor(alpha)))
    sides = [torch.nextafter(exact, torch.tensor(side)) for side in (0.0, 1.0)]
    magnitude = torch.cat((torch.rand(20000), exact, *sides, torch.tensor([0.0, 1.0, 1e-45, 1e-7])))
    return torch.cat((magnitude, -magnitude))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_magnitude_counts_the_thresholds_below(alpha: float) -> None:
    u = values(alpha)
    code = companding(alpha, CPU).codes(u.clone())
    magnitude = torch.searchsorted(thresholds(float(torch.tensor(alpha))), u.abs())
    negative = u < 0
    assert torch.equal((code ^ (negative.to(torch.uint8) * 0xF0)).long(), magnitude + 7)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_magnitude_is_the_rounded_logarithm_but_at_boundaries(alpha: float) -> None:
    u = torch.rand(1_000_000, generator=torch.Generator().manual_seed(0))
    code = companding(alpha, CPU).codes(u.clone())
    exact = 112 * torch.log1p(alpha * u.double()) / math.log1p(alpha)
    differs = code.long() - 7 != exact.round().long()
    assert differs.float().mean() < 1e-4
    assert ((exact[differs] % 1) - 0.5).abs().lt(1e-3).all()


def test_split_is_a_rounded_half_down_anchor_and_a_residual() -> None:
    table = companding(0.5, CPU)
    u = values(0.5)
    code = table.codes(u.clone()).long()
    nibble, r = code >> 4, (code & 15) - 7
    a = torch.where(nibble < 8, nibble, 15 - nibble)
    magnitude = 16 * a + r
    assert torch.equal(nibble >= 8, u < 0)
    assert magnitude.min() == 0
    assert magnitude.max() == 112
    assert torch.equal(a, (magnitude / 16 - 0.5).ceil().long().clamp(min=0))
    assert r.min() >= -7
    assert r.max() <= 8


def test_negative_zero_counts_as_positive() -> None:
    assert companding(0.5, CPU).codes(torch.tensor([-0.0])).item() == 7


@pytest.mark.parametrize("alpha", ALPHAS)
def test_extremes_are_exact_with_and_without_the_residual(alpha: float) -> None:
    table = companding(alpha, CPU)
    code = table.codes(torch.tensor([1.0, -1.0])).long()
    assert table.full[code].tolist() == [1.0, -1.0]
    assert table.anchor[code >> 4].tolist() == [1.0, -1.0]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_error_stays_within_the_stated_bound(alpha: float) -> None:
    table = companding(alpha, CPU)
    u = values(alpha)
    code = table.codes(u.clone()).long()
    offset = u.abs().double() + 1 / alpha
    for decoded, steps in ((table.full[code], 0.5), (table.anchor[code >> 4], 8.5)):
        bound = offset * math.expm1(steps / 112 * math.log1p(alpha))
        assert ((decoded.double() - u.double()).abs() <= bound * (1 + 1e-5) + 1e-6).all()
        assert torch.equal(decoded.signbit() & (decoded != 0), (u < 0) & (decoded != 0))


def test_tables_hold_the_same_bits_everywhere() -> None:
    table = Companding(0.5, CPU)
    joined = torch.cat((thresholds(0.5), table.anchor, table.full)).numpy().tobytes()
    assert hashlib.sha256(joined).hexdigest() == (
        "7f339188dbffb5cb8938b5fca946b58b5c3118a01c5518dcec7b6e374c99090e"
    )
