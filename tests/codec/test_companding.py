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


def test_a_code_is_a_biased_magnitude_and_a_sign() -> None:
    u = values(0.5)
    code = companding(0.5, CPU).codes(u.clone()).long()
    assert torch.equal(code >= 128, u < 0)
    magnitude = torch.where(code >= 128, code ^ 0xF0, code) - 7
    assert magnitude.min() == 0
    assert magnitude.max() == 112


def test_negative_zero_counts_as_positive() -> None:
    assert companding(0.5, CPU).codes(torch.tensor([-0.0])).item() == 7


@pytest.mark.parametrize("alpha", ALPHAS)
def test_extremes_are_exact_with_all_bits_and_near_with_four(alpha: float) -> None:
    table = companding(alpha, CPU)
    code = table.codes(torch.tensor([1.0, -1.0])).long()
    assert table.full[code].tolist() == [1.0, -1.0]
    near = math.expm1(108.5 / 112 * math.log1p(alpha)) / alpha
    assert table.anchor[4 * 256 + (code & 0xF0)].tolist() == pytest.approx([near, -near], rel=1e-6)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("width", range(1, 9))
def test_error_stays_within_the_stated_bound(alpha: float, width: int) -> None:
    table = companding(alpha, CPU)
    u = values(alpha)
    code = table.codes(u.clone()).long()
    known = code & (0xFF << (8 - width))
    decoded = table.anchor[256 * width + known]
    bound = (u.abs().double() + 1 / alpha) * math.expm1(2.0 ** (7 - width) / 112 * math.log1p(alpha))
    assert ((decoded.double() - u.double()).abs() <= bound * (1 + 1e-5) + 1e-6).all()
    assert torch.equal(decoded.signbit() & (decoded != 0), (u < 0) & (decoded != 0))
    if width == 8:
        assert torch.equal(decoded, table.full[code])


def test_tables_hold_the_same_bits_everywhere() -> None:
    table = Companding(0.5, CPU)
    joined = torch.cat((thresholds(0.5), table.anchor, table.full)).numpy().tobytes()
    assert hashlib.sha256(joined).hexdigest() == (
        "89a6531f5189c5ad7876d127fb88b6df91b17189f4cd062020a102f3ad3f75f4"
    )
