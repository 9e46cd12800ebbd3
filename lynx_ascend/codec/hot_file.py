"""The mask file: the hot channels of a whole model in one small YAML file.

Schema (every key but ``model`` is required; ``channels`` holds one ascending list per head)::

    format: lynx-ascend/hot-channels
    version: 1
    model: some/name            # for people; not checked
    planes:
      - {layer: 0, plane: k, heads: 2, dim: 64, channels: [[3, 17], []]}
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lynx_ascend.codec.hot import HotChannels
from lynx_ascend.errors import ConfigError

FORMAT = "lynx-ascend/hot-channels"
VERSION = 1


def save_hot_channels(
    path: str | os.PathLike[str],
    masks: Mapping[tuple[int, str], HotChannels],
    *,
    model: str | None = None,
) -> None:
    """Write the masks, keyed by (layer, plane name), in ascending order of the key."""
    import yaml

    planes = [
        {"layer": layer, "plane": plane, **masks[layer, plane].to_dict()} for layer, plane in sorted(masks)
    ]
    head: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    if model is not None:
        head["model"] = model
    text = yaml.safe_dump({**head, "planes": planes}, sort_keys=False, default_flow_style=None, width=110)
    Path(path).write_text(text, encoding="utf-8")


def load_hot_channels(path: str | os.PathLike[str]) -> dict[tuple[int, str], HotChannels]:
    """Read a mask file into masks keyed by (layer, plane name); absent planes have no hot channels.

    Raises ConfigError, which names the file and the entry, if the file cannot be read, is not YAML
    of the schema above, or names a plane twice.
    """
    import yaml

    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the hot channels of {path}: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ConfigError(f"{path} is no mask file: it must say 'format: {FORMAT}'")
    if data.get("version") != VERSION:
        raise ConfigError(f"{path} has version {data.get('version')!r}; this release reads {VERSION}")
    planes = data.get("planes")
    if not isinstance(planes, list):
        raise ConfigError(f"{path} needs a list under 'planes'")
    masks: dict[tuple[int, str], HotChannels] = {}
    for index, entry in enumerate(planes):
        key = _plane_key(path, index, entry)
        if key in masks:
            raise ConfigError(f"{path}: planes[{index}] repeats layer {key[0]}, plane {key[1]}")
        try:
            masks[key] = HotChannels.from_dict(entry)
        except ConfigError as error:
            raise ConfigError(f"{path}: planes[{index}]: {error}") from error
    return masks


def _plane_key(path: str | os.PathLike[str], index: int, entry: object) -> tuple[int, str]:
    if not isinstance(entry, dict):
        raise ConfigError(f"{path}: planes[{index}] must be a mapping")
    layer, plane = entry.get("layer"), entry.get("plane")
    if not isinstance(layer, int) or isinstance(layer, bool) or layer < 0:
        raise ConfigError(f"{path}: planes[{index}] needs a layer number, not {layer!r}")
    if not isinstance(plane, str) or not plane:
        raise ConfigError(f"{path}: planes[{index}] needs a plane name, not {plane!r}")
    return layer, plane
