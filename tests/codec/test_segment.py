"""A segment in the pages: what it names is there, or it is refused before anything is touched."""

from __future__ import annotations

import pytest
import torch

from lynx_ascend.codec import K_SPEC, codec_names, get_codec, ops
from lynx_ascend.codec.pages import PagedPlane
from lynx_ascend.codec.segment import PagedSegment
from lynx_ascend.errors import CodecError

from .planes import laplacian, same_bits

PAGES = PagedPlane(torch.zeros(20, 48, 2, 8), 8)


@pytest.mark.parametrize(
    ("ids", "start", "end", "match"),
    [
        ([0, 20], 0, 96, "there are 20 blocks"),
        ([0, -1], 0, 96, "there are 20 blocks"),
        ([-1, 0], 0, 1, "there are 20 blocks"),
        ([0], 0, 96, "do not reach"),
        ([0, 1], 96, 96, "tokens"),
        ([0, 1], -1, 96, "tokens"),
    ],
)
def test_what_is_not_there_is_refused(ids, start, end, match):
    with pytest.raises(CodecError, match=match):
        PagedSegment(PAGES, torch.tensor(ids), start, end)


def test_blocks_outside_the_segment_may_be_gone():
    """A sliding window frees the blocks behind it."""
    segment = PagedSegment(PAGES, torch.tensor([-1, 3, 99]), 48, 96)
    assert segment.gather().shape == (48, 2, 8)


def test_other_block_tables_are_refused():
    for table in (torch.zeros(2, dtype=torch.int32), torch.zeros(1, 2, dtype=torch.int64)):
        with pytest.raises(CodecError, match="int64"):
            PagedSegment(PAGES, table, 0, 48)


@pytest.mark.parametrize("name", codec_names())
def test_a_wrong_block_is_refused_by_every_codec_and_changes_nothing(name):
    pages, codec = PagedPlane(torch.full((20, 48, 2, 8), 3.0), 8), get_codec(name)
    good = codec.encode(laplacian(96, 2, 8), K_SPEC)
    for ids in (torch.tensor([0, -1]), torch.tensor([0, 20])):
        with pytest.raises(CodecError, match="there are 20 blocks"):
            ops.encode(PagedSegment(pages, ids, 0, 96), codec, K_SPEC)
        with pytest.raises(CodecError, match="there are 20 blocks"):
            ops.decode(PagedSegment(pages, ids, 0, 96), codec, K_SPEC, good.anchor, good.residual)
    assert (pages.values == 3).all()


def test_a_negative_skip_is_refused():
    plane = laplacian(96, 2, 8)
    before, codec = plane.clone(), get_codec("lynx")
    good = codec.encode(plane, K_SPEC)
    with pytest.raises(CodecError, match="skip"):
        ops.decode(PagedSegment.of(plane), codec, K_SPEC, good.anchor, skip=-1)
    assert same_bits(plane, before)
