"""The calibration of a model: what was found best for each of its planes, in one small YAML file.

Schema (``model`` and ``gains`` are for people; ``widths`` holds one digit per channel, one string per head)::

    format: lynx-ascend/calibration
    version: 1
    model: some/name
    gains: {bits_anchor: 4.69, kl_anchor: 0.0003}
    planes:
      - {layer: 0, plane: k, chunk: 64, alpha: 0.5, widths: ["44864444", "44448444"]}
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lynx_ascend.codec.spec import PlaneSpec
from lynx_ascend.codec.widths import ChannelWidths
from lynx_ascend.errors import ConfigError

FORMAT = "lynx-ascend/calibration"
VERSION = 1


@dataclass(frozen=True)
class PlaneCalibration:
    """The choices for one plane."""

    chunk: int
    alpha: float
    widths: ChannelWidths

    def apply(self, spec: PlaneSpec) -> PlaneSpec:
        """``spec`` with these choices. Raises ConfigError where they are none."""
        return replace(spec, chunk=self.chunk, alpha=self.alpha, widths=self.widths)


@dataclass(frozen=True)
class Calibration:
    """The choices for a model's planes, by (layer, plane name); planes that are absent keep the defaults."""

    planes: Mapping[tuple[int, str], PlaneCalibration]
    model: str | None = None
    gains: Mapping[str, float] = field(default_factory=dict)

    def apply(self, layer: int, plane: str, spec: PlaneSpec) -> PlaneSpec:
        """``spec`` of a plane with what was found for it."""
        found = self.planes.get((layer, plane))
        return spec if found is None else found.apply(spec)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, planes in ascending order."""
        import yaml

        planes = [
            {
                "layer": layer,
                "plane": plane,
                "chunk": found.chunk,
                "alpha": found.alpha,
                "widths": found.widths.digits(),
            }
            for (layer, plane), found in sorted(self.planes.items())
        ]
        head: dict[str, Any] = {"format": FORMAT, "version": VERSION}
        if self.model is not None:
            head["model"] = self.model
        if self.gains:
            head["gains"] = dict(self.gains)
        text = yaml.safe_dump({**head, "planes": planes}, sort_keys=False, default_flow_style=None, width=110)
        Path(path).write_text(text, encoding="utf-8")


def load_calibration(path: str | os.PathLike[str]) -> Calibration:
    """Read a calibration.

    Raises ConfigError, which names the file and the entry, if the file cannot be read, is not YAML of the schema above,
    or names a plane twice.
    """
    import yaml

    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the calibration {path}: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ConfigError(f"{path} is no calibration: it must say 'format: {FORMAT}'")
    if data.get("version") != VERSION:
        raise ConfigError(f"{path} has version {data.get('version')!r}; this release reads {VERSION}")
    entries = data.get("planes")
    if not isinstance(entries, list):
        raise ConfigError(f"{path} needs a list under 'planes'")
    planes: dict[tuple[int, str], PlaneCalibration] = {}
    for index, entry in enumerate(entries):
        try:
            key, found = _plane(entry)
        except ConfigError as error:
            raise ConfigError(f"{path}: planes[{index}]: {error}") from error
        if key in planes:
            raise ConfigError(f"{path}: planes[{index}] repeats layer {key[0]}, plane {key[1]}")
        planes[key] = found
    model, gains = data.get("model"), data.get("gains")
    return Calibration(
        planes, None if model is None else str(model), gains if isinstance(gains, dict) else {}
    )


def _plane(entry: object) -> tuple[tuple[int, str], PlaneCalibration]:
    if not isinstance(entry, dict):
        raise ConfigError("an entry must be a mapping")
    if unknown := set(entry) - {"layer", "plane", "chunk", "alpha", "widths"}:
        raise ConfigError(f"unknown keys {', '.join(sorted(map(str, unknown)))}")
    layer, plane = entry.get("layer"), entry.get("plane")
    if not isinstance(layer, int) or isinstance(layer, bool) or layer < 0:
        raise ConfigError(f"'layer' must be a layer number, not {layer!r}")
    if not isinstance(plane, str) or not plane:
        raise ConfigError(f"'plane' must be a plane name, not {plane!r}")
    chunk, alpha = entry.get("chunk"), entry.get("alpha")
    if not isinstance(chunk, int) or not isinstance(alpha, int | float):
        raise ConfigError("'chunk' and 'alpha' must be numbers")
    found = PlaneCalibration(chunk, float(alpha), ChannelWidths.parse(entry.get("widths")))
    found.apply(PlaneSpec())  # a chunk or an alpha that is none
    return (layer, plane), found
