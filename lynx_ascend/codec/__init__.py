"""The format of a KV-cache plane on the wire. Pure functions on tensors: no I/O, no engine."""

from lynx_ascend.codec.base import Codec, EncodedPlane, PlaneShape
from lynx_ascend.codec.hot import HotChannels
from lynx_ascend.codec.hot_file import load_hot_channels, save_hot_channels
from lynx_ascend.codec.registry import codec_names, get_codec, servable_codecs
from lynx_ascend.codec.spec import K_SPEC, LATENT_SPEC, V_SPEC, CodecSpec, PlaneSpec

__all__ = [
    "K_SPEC",
    "LATENT_SPEC",
    "V_SPEC",
    "Codec",
    "CodecSpec",
    "EncodedPlane",
    "HotChannels",
    "PlaneShape",
    "PlaneSpec",
    "codec_names",
    "get_codec",
    "load_hot_channels",
    "save_hot_channels",
    "servable_codecs",
]
