from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from lynx_ascend.codec import K_SPEC, LATENT_SPEC, V_SPEC, CodecSpec, PlaneSpec
from lynx_ascend.errors import ConfigError

from .planes import uneven


def test_defaults() -> None:
    assert (K_SPEC.chunk, K_SPEC.token_scale) == (LATENT_SPEC.chunk, LATENT_SPEC.token_scale) == (32, False)
    assert (K_SPEC.kind, V_SPEC.kind, LATENT_SPEC.kind) == ("k", "v", "latent")
    assert (V_SPEC.chunk, V_SPEC.token_scale) == (64, True)
    assert CodecSpec() == CodecSpec(page=256, levels=112, sinks=4, center="midrange")


def test_specs_are_frozen_and_hashed_by_content() -> None:
    assert len({PlaneSpec(widths=uneven(2, 4)), PlaneSpec(widths=uneven(2, 4)), PlaneSpec()}) == 2
    with pytest.raises(FrozenInstanceError):
        K_SPEC.chunk = 64  # type: ignore[misc]


def test_slice_takes_the_heads_of_a_rank() -> None:
    assert PlaneSpec(widths=uneven(4, 6)).slice(slice(1, 2)).anchor_bits(0, 6) == 48
    assert K_SPEC.slice(slice(0, 1)) is K_SPEC


@pytest.mark.parametrize(
    "bad",
    [
        {"chunk": 16},
        {"chunk": 48},
        {"token_scale": 1},
        {"alpha": 0},
        {"alpha": -1.0},
        {"alpha": float("nan")},
        {"alpha": float("inf")},
        {"alpha": "big"},
        {"widths": [[1]]},
        {"kind": "q"},
    ],
)
def test_plane_spec_refuses(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        PlaneSpec(**bad)


@pytest.mark.parametrize(
    "bad",
    [
        {"page": 0},
        {"page": 100},
        {"page": 64.0},
        {"levels": 127},
        {"sinks": 32},
        {"sinks": -1},
        {"center": "median"},
    ],
)
def test_codec_spec_refuses(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        CodecSpec(**bad)
