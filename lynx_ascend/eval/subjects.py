"""What is compared: codecs of the registry, and `lynx` with a model's calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lynx_ascend.codec import K_SPEC, V_SPEC, Codec, CodecSpec, PlaneSpec, codec_names, get_codec
from lynx_ascend.eval.coded import Specs

DEFAULT = (
    "lynx", "lynx-paper", "cachegen", "kivi4", "int4", "int4-channel-32", "int4-token-32", "int8", "int8-token", "bf16",
)  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """A codec under a name, with the settings of every plane."""

    name: str
    codec: Codec
    specs: Specs


def plain_specs(layer: int, plane: str) -> PlaneSpec:
    """The defaults: nothing hot."""
    return K_SPEC if plane == "k" else V_SPEC


def subjects(names: Sequence[str], sinks: int | None = None) -> list[Subject]:
    """Codecs by name with default settings, ``sinks`` exact tokens (None: the codec's own default).

    Raises ConfigError for a name that is not in the registry.
    """
    spec = None if sinks is None else CodecSpec(sinks=sinks)
    return [Subject(name, get_codec(name, spec), plain_specs) for name in names]


def all_names() -> tuple[str, ...]:
    """Every codec whose final KV is its own: ``lynx-int8`` and ``lynx-int4`` are the two streams of ``lynx``."""
    return tuple(name for name in codec_names() if name not in ("lynx-int8", "lynx-int4"))
