from __future__ import annotations

import pytest
import torch

from lynx_ascend.codec import ChannelWidths
from lynx_ascend.errors import ConfigError

from .planes import uneven


def test_rows_and_sums() -> None:
    widths = uneven(3, 6)
    assert widths.row(0) == (4, 4, 4, 4, 4, 4)
    assert widths.row(2) == (1, 4, 7, 2, 5, 8)
    assert [widths.bits(head) for head in range(3)] == [24, 48, 27]


def test_equal_and_hashed_by_content() -> None:
    assert uneven(3, 6) == uneven(3, 6)
    assert len({uneven(3, 6), uneven(3, 6), uneven(3, 7), ChannelWidths.uniform(3, 6)}) == 3
    assert ChannelWidths.uniform(1, 2) != "44"


def test_does_not_share_the_tensor() -> None:
    values = torch.full((1, 4), 4)
    widths = ChannelWidths(values)
    values[0, 1] = 8
    widths.values[0, 2] = 8
    assert widths == ChannelWidths.uniform(1, 4)


def test_slice_takes_the_heads_of_a_rank() -> None:
    assert torch.equal(uneven(4, 6).slice(slice(1, 3)).values, uneven(4, 6).values[1:3])


def test_digits_round_trip() -> None:
    assert uneven(3, 6).digits() == ["444444", "888888", "147258"]
    assert ChannelWidths.parse(uneven(4, 9).digits()) == uneven(4, 9)


@pytest.mark.parametrize(
    "values",
    [
        torch.full((4,), 4),
        torch.full((2, 3), 4.0),
        torch.ones(2, 2, dtype=torch.bool),
        torch.ones(0, 3).int(),
    ],
)
def test_refuses_other_tensors(values: torch.Tensor) -> None:
    with pytest.raises(ConfigError, match=r"integers \[heads, dim\]"):
        ChannelWidths(values)


@pytest.mark.parametrize("width", [0, 9, -1])
def test_refuses_other_widths(width: int) -> None:
    with pytest.raises(ConfigError, match="1 to 8 bits"):
        ChannelWidths.uniform(1, 2, width)


@pytest.mark.parametrize("rows", [None, [], "44", [[4]], [""], ["44", "444"], ["40"], ["4x"], ["49"]])
def test_refuses_other_digits(rows: object) -> None:
    with pytest.raises(ConfigError, match="digit"):
        ChannelWidths.parse(rows)
