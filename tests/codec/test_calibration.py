from __future__ import annotations

from pathlib import Path

import pytest

from lynx_ascend.codec import Calibration, ChannelWidths, PlaneSpec, load_calibration
from lynx_ascend.codec.calibration import PlaneCalibration
from lynx_ascend.errors import ConfigError

from .planes import uneven

HEAD = "format: lynx-ascend/calibration\nversion: 1\n"
ENTRY = "{layer: 0, plane: k, chunk: 64, alpha: 0.5, widths: ['4862']}"


def test_round_trip(tmp_path: Path) -> None:
    planes = {
        (1, "k"): PlaneCalibration(32, 0.1, uneven(3, 8)),
        (0, "v"): PlaneCalibration(128, 1.5, ChannelWidths.uniform(3, 8)),
        (0, "k"): PlaneCalibration(64, 0.5, uneven(2, 64)),
    }
    path = tmp_path / "some.yaml"
    Calibration(planes, "some/model", {"bits_anchor": 4.7}).save(path)
    loaded = load_calibration(path)
    assert loaded.planes == planes
    assert list(loaded.planes) == [(0, "k"), (0, "v"), (1, "k")]
    assert (loaded.model, loaded.gains) == ("some/model", {"bits_anchor": 4.7})


def test_reads_the_documented_schema_and_changes_what_it_names(tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(f"{HEAD}planes:\n  - {ENTRY}\n")
    found = load_calibration(path)
    spec = PlaneSpec(token_scale=True, kind="v")
    changed = found.apply(0, "k", spec)
    assert (changed.chunk, changed.alpha, changed.token_scale, changed.kind) == (64, 0.5, True, "v")
    assert changed.widths is not None
    assert changed.widths.row(0) == (4, 8, 6, 2)
    assert found.apply(1, "k", spec) is spec


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "format"),
        ("format: other", "format"),
        ("a: [", "cannot read"),
        ("format: lynx-ascend/calibration\nversion: 2", "version 2"),
        (HEAD, "list under 'planes'"),
        (f"{HEAD}planes: [3]", r"planes\[0\]: an entry must be a mapping"),
        (f"{HEAD}planes: [{{plane: k}}]", "layer number"),
        (f"{HEAD}planes: [{{layer: 0}}]", "plane name"),
        (f"{HEAD}planes: [{{layer: 0, plane: k}}]", r"planes\[0\]: 'chunk' and 'alpha'"),
        (f"{HEAD}planes: [{ENTRY.replace('64', '33')}]", r"planes\[0\]: chunk is 33"),
        (f"{HEAD}planes: [{ENTRY.replace('4862', '4962')}]", r"planes\[0\]: channel widths"),
        (f"{HEAD}planes: [{ENTRY.replace('alpha', 'beta')}]", r"planes\[0\]: unknown keys beta"),
        (f"{HEAD}planes: [{ENTRY}, {ENTRY}]", r"planes\[1\] repeats layer 0, plane k"),
    ],
)
def test_refuses_bad_files(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_calibration(path)


def test_names_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent"):
        load_calibration(tmp_path / "absent.yaml")
