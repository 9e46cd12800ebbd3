from __future__ import annotations

import torch

from lynx_ascend.codec.scales import fractions, sigma_codes, sigmas, token_scale_codes, token_scales

CPU = torch.device("cpu")


def test_sigma_is_the_smallest_that_covers() -> None:
    reach = torch.cat((torch.rand(4000), sigmas(CPU), torch.nextafter(sigmas(CPU)[1:], torch.tensor(1.0))))
    code = sigma_codes(reach)
    assert (sigmas(CPU)[code] >= reach).all()
    smaller = sigmas(CPU)[(code + 1).clamp(max=255)]
    assert ((smaller < reach) | (code == 255)).all()


def test_sigma_of_a_constant_chunk_is_the_last_code() -> None:
    assert sigma_codes(torch.tensor([0.0, 1.0])).tolist() == [255, 0]


def test_token_scale_is_the_smallest_that_covers() -> None:
    largest = torch.cat((2 ** (torch.rand(4000) * 60 - 40), token_scales(CPU), torch.tensor([0.0, 65504.0])))
    code = token_scale_codes(largest)
    assert (token_scales(CPU)[code] >= largest).all()
    smaller = token_scales(CPU)[(code - 1).clamp(min=0)]
    assert ((smaller < largest) | (code == 0)).all()
    assert code[-2:].tolist() == [0, 192]


def test_token_scale_codes_follow_the_logarithm() -> None:
    largest = 2 ** (torch.rand(10000) * 40 - 20)
    formula = (torch.ceil(4 * largest.double().log2()) + 128).clamp(0, 255).long()
    assert torch.equal(token_scale_codes(largest), formula)


def test_tables_ignore_the_default_dtype() -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        fresh = fractions.__wrapped__(255, CPU)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(fresh, fractions(255, CPU))
    # A backend may divide instead of looking up.
    assert torch.equal(fresh, torch.arange(256, dtype=torch.float32) / 255)
    fifteenths = torch.arange(16, dtype=torch.float32) / 15
    assert torch.equal(fractions(15, CPU), fifteenths)
