from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from lynx_ascend.codec.float16 import covering_range, round_down, round_up

finite = st.floats(-65504, 65504, width=32)


def test_every_float16_is_kept() -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    every = every[every.isfinite()]
    for rounding in (round_down, round_up):
        assert torch.equal(rounding(every.float()).view(torch.int16), every.view(torch.int16))


def test_the_neighbours_of_every_float16() -> None:
    every = torch.arange(0, 0x7C00, dtype=torch.int16).view(torch.float16)
    every = torch.cat((-every.flip(0)[:-1], every))
    exact = every.float()
    above, below = (torch.nextafter(exact, torch.tensor(side * float("inf"))) for side in (1, -1))
    assert torch.equal(round_down(above), every)
    assert torch.equal(round_up(below), every)
    assert torch.equal(round_up(above)[:-1], every[1:])
    assert torch.equal(round_down(below)[1:], every[:-1])


def test_smallest_values_and_overflow() -> None:
    tiny = torch.tensor([1e-30, -1e-30])
    assert round_down(tiny).tolist() == [0.0, -(2.0**-24)]
    assert round_up(tiny).tolist() == [2.0**-24, 0.0]
    assert round_up(torch.tensor([65504.1])).isinf().all()
    assert round_down(torch.tensor([65519.0, 1e9])).tolist() == [65504.0, 65504.0]


@given(finite, finite)
def test_range_covers(a: float, b: float) -> None:
    low, high = torch.tensor([min(a, b)]), torch.tensor([max(a, b)])
    base, width = (part.float() for part in covering_range(low, high))
    assert base <= low
    assert base + width >= high
    if width.isfinite():
        xn = (high - base) / torch.where(width == 0, 1.0, width)
        assert 0 <= xn <= 1
        spacing = max(abs(base.item()) * 2**-10, 2**-24)
        assert width <= (high - low + spacing) * (1 + 2**-9) + 2**-23


def test_range_has_no_negative_zero() -> None:
    for low, high in ((-0.0, -0.0), (-0.0, 0.0), (-0.0, 1.0)):
        base, width = covering_range(torch.tensor([low]), torch.tensor([high]))
        assert not base.signbit()
        assert not width.signbit()


def test_range_of_a_constant_is_zero_wide() -> None:
    assert covering_range(torch.tensor([-1.5]), torch.tensor([-1.5]))[1].item() == 0


def test_range_covers_where_the_difference_rounds_down() -> None:
    base, width = covering_range(torch.tensor([-1.0]), torch.tensor([2.0**-30]))
    assert base + width.float() >= 2.0**-30
