"""The calibrations that ship with the package, by the name of their model."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "data"


def find_calibration(model: str) -> str | None:
    """Path of the calibration for a known model's name, or None. See `lynx-ascend calibrate`."""
    path = _FOLDER / f"{model}.yaml"
    return str(path) if path.name == f"{model}.yaml" and path.is_file() else None
