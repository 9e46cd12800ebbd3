"""What is compared: codecs of the registry, and `lynx` with a model's calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lynx_ascend.codec import (
    K_SPEC,
    V_SPEC,
    Calibration,
    Codec,
    CodecSpec,
    PlaneSpec,
    codec_names,
    get_codec,
    load_calibration,
)
from lynx_ascend.eval.coded import Specs
from lynx_ascend.models.calibrations import find_calibration

# `lynx` with its calibration and without; the rest of the registry. `lynx-int8` and `lynx-int4` are its two streams.
UNCALIBRATED = "lynx-default"
_STREAMS = ("lynx-int8", "lynx-int4")


@dataclass(frozen=True)
class Subject:
    """A codec under a name, with the settings of every plane."""

    name: str
    codec: Codec
    specs: Specs


def plain_specs(layer: int, plane: str) -> PlaneSpec:
    """The defaults."""
    return K_SPEC if plane == "k" else V_SPEC


def subject_names() -> tuple[str, ...]:
    """Every name that `subjects` takes."""
    return (UNCALIBRATED, *(name for name in codec_names() if name not in _STREAMS))


def subjects(
    names: Sequence[str], model: str, *, calibration: str | None = None, spec: CodecSpec | None = None
) -> list[Subject]:
    """The codecs by name, with ``spec`` (None: each codec's own default).

    `lynx` has the calibration of the file ``calibration``, else the one that ships for ``model``, if there is one.

    Raises ConfigError for a name that is not known or a file that is none.
    """
    path = calibration if calibration is not None else find_calibration(model)
    found = load_calibration(path) if path is not None else Calibration({})

    def calibrated(layer: int, plane: str) -> PlaneSpec:
        return found.apply(layer, plane, plain_specs(layer, plane))

    made = []
    for name in names:
        codec = get_codec("lynx" if name == UNCALIBRATED else name, spec)
        made.append(Subject(name, codec, calibrated if name == "lynx" else plain_specs))
    return made
