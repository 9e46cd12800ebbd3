from __future__ import annotations

from typing import Any

import pytest
import torch

from lynx_ascend.codec import HotChannels
from lynx_ascend.errors import ConfigError

from .planes import uneven


def test_counts_differ_by_head() -> None:
    hot = uneven(3, 6)
    assert [hot.count(head) for head in range(3)] == [0, 6, 2]
    assert hot.channels(2) == (0, 3)


def test_equal_and_hashed_by_content() -> None:
    assert uneven(3, 6) == uneven(3, 6)
    assert len({uneven(3, 6), uneven(3, 6), uneven(3, 7), HotChannels.none(3, 6)}) == 3
    assert HotChannels.none(1, 2) != "none"


def test_does_not_share_the_mask() -> None:
    mask = torch.zeros(1, 4, dtype=torch.bool)
    hot = HotChannels(mask)
    mask[0, 1] = True
    hot.mask[0, 2] = True
    assert hot == HotChannels.none(1, 4)


def test_slice_takes_the_heads_of_a_rank() -> None:
    assert torch.equal(uneven(4, 6).slice(slice(1, 3)).mask, uneven(4, 6).mask[1:3])


def test_dict_round_trip() -> None:
    assert HotChannels.from_dict(uneven(4, 9).to_dict()) == uneven(4, 9)


@pytest.mark.parametrize("mask", [torch.zeros(4), torch.zeros(4, dtype=torch.bool), torch.zeros(2, 3)])
def test_refuses_other_tensors(mask: torch.Tensor) -> None:
    with pytest.raises(ConfigError, match="bool mask"):
        HotChannels(mask)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "keys"),
        ({"heads": 0, "dim": 4, "channels": []}, "positive"),
        ({"heads": True, "dim": 4, "channels": [[]]}, "positive"),
        ({"heads": 2, "dim": 4, "channels": [[]]}, "each of 2 heads"),
        ({"heads": 1, "dim": 4, "channels": [[4]]}, "below 4"),
        ({"heads": 1, "dim": 4, "channels": [[-1]]}, "below 4"),
        ({"heads": 1, "dim": 4, "channels": ["01"]}, "below 4"),
        ({"heads": 1, "dim": 4, "channels": [[1, 1]]}, "ascend"),
        ({"heads": 1, "dim": 4, "channels": [[2, 1]]}, "ascend"),
    ],
)
def test_refuses_bad_dicts(data: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        HotChannels.from_dict(data)
