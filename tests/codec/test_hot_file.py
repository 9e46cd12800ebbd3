from __future__ import annotations

from pathlib import Path

import pytest

from lynx_ascend.codec import HotChannels, load_hot_channels, save_hot_channels
from lynx_ascend.errors import ConfigError

from .planes import uneven

HEAD = "format: lynx-ascend/hot-channels\nversion: 1\n"
ENTRY = "{layer: 0, plane: k, heads: 1, dim: 4, channels: [[1]]}"


def test_round_trip(tmp_path: Path) -> None:
    masks = {(1, "k"): uneven(3, 8), (0, "v"): HotChannels.none(3, 8), (0, "k"): uneven(2, 64)}
    path = tmp_path / "masks.yaml"
    save_hot_channels(path, masks, model="some/model")
    loaded = load_hot_channels(path)
    assert loaded == masks
    assert list(loaded) == [(0, "k"), (0, "v"), (1, "k")]


def test_reads_the_documented_schema(tmp_path: Path) -> None:
    path = tmp_path / "masks.yaml"
    path.write_text(f"{HEAD}planes:\n  - {ENTRY}\n")
    assert load_hot_channels(path)[0, "k"].channels(0) == (1,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "format"),
        ("format: other", "format"),
        ("a: [", "cannot read"),
        ("format: lynx-ascend/hot-channels\nversion: 2", "version 2"),
        (HEAD, "list under 'planes'"),
        (f"{HEAD}planes: [3]", r"planes\[0\] must be a mapping"),
        (f"{HEAD}planes: [{{plane: k}}]", "layer number"),
        (f"{HEAD}planes: [{{layer: 0}}]", "plane name"),
        (f"{HEAD}planes: [{{layer: 0, plane: k}}]", r"planes\[0\]: hot channels need the keys"),
        (f"{HEAD}planes: [{ENTRY}, {ENTRY}]", r"planes\[1\] repeats layer 0, plane k"),
    ],
)
def test_refuses_bad_files(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "masks.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_hot_channels(path)


def test_names_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent"):
        load_hot_channels(tmp_path / "absent.yaml")
