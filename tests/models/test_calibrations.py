"""The calibrations that ship: one for every model that can be prepared, and they load."""

from __future__ import annotations

import pytest

from lynx_ascend.codec import K_SPEC, V_SPEC, load_calibration
from lynx_ascend.models import catalog
from lynx_ascend.models.calibrations import find_calibration

PLANES = {"smollm2": (30, 3, 64), "gemma3-270m": (18, 1, 256)}


@pytest.mark.parametrize("model", catalog.CATALOG)
def test_every_known_model_has_one(model):
    path = find_calibration(model)
    assert path is not None
    found = load_calibration(path)
    layers, heads, dim = PLANES[model]
    assert found.model == model
    assert set(found.planes) == {(layer, plane) for layer in range(layers) for plane in ("k", "v")}
    for (layer, plane), chosen in found.planes.items():
        assert (chosen.widths.heads, chosen.widths.dim) == (heads, dim)
        assert found.apply(layer, plane, K_SPEC if plane == "k" else V_SPEC).widths is chosen.widths
    assert found.gains["long_bits"] <= 4.7
    assert found.gains["calibrated_bits_anchor"] <= 4.705
    assert found.gains["calibrated_kl_anchor"] < 0.5 * found.gains["default_kl_anchor"]


@pytest.mark.parametrize("name", ["no-such-model", "../data/smollm2", "/etc/passwd", "", "some/model"])
def test_other_names_have_none(name):
    assert find_calibration(name) is None
