"""The format of a KV-cache plane on the wire. Pure functions on tensors: no I/O, no engine."""

from lynx_ascend.codec.base import Codec, EncodedPlane, PlaneShape
from lynx_ascend.codec.calibration import Calibration, load_calibration
from lynx_ascend.codec.registry import codec_names, get_codec, servable_codecs
from lynx_ascend.codec.spec import K_SPEC, LATENT_SPEC, V_SPEC, CodecSpec, PlaneSpec
from lynx_ascend.codec.widths import ChannelWidths

__all__ = [
    "K_SPEC",
    "LATENT_SPEC",
    "V_SPEC",
    "Calibration",
    "ChannelWidths",
    "Codec",
    "CodecSpec",
    "EncodedPlane",
    "PlaneShape",
    "PlaneSpec",
    "codec_names",
    "get_codec",
    "load_calibration",
    "servable_codecs",
]
