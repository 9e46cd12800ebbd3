"""Codecs by name."""

from __future__ import annotations

from lynx_ascend.codec.base import Codec
from lynx_ascend.codec.cachegen import CacheGen32Codec, CacheGenCodec
from lynx_ascend.codec.cast import Bf16Codec
from lynx_ascend.codec.linear import LINEAR_CODECS
from lynx_ascend.codec.lynx import LynxCodec, LynxInt4Codec, LynxInt8Codec
from lynx_ascend.codec.lynx_paper import LynxPaper127Codec, LynxPaperCodec
from lynx_ascend.codec.spec import CodecSpec
from lynx_ascend.errors import ConfigError

_ALL: tuple[type[Codec], ...] = (
    *(LynxCodec, LynxInt8Codec, LynxInt4Codec, LynxPaperCodec, LynxPaper127Codec, Bf16Codec),
    *LINEAR_CODECS,
    *(CacheGenCodec, CacheGen32Codec),
)
_CODECS = {codec.name: codec for codec in _ALL}


def get_codec(name: str, spec: CodecSpec | None = None) -> Codec:
    """The codec called ``name``, with the default CodecSpec if none is given. Raises ConfigError."""
    try:
        return _CODECS[name](spec)
    except KeyError:
        raise ConfigError(f"no codec is called {name!r}; there are {', '.join(_CODECS)}") from None


def codec_names() -> tuple[str, ...]:
    """Every name that ``get_codec`` knows."""
    return tuple(_CODECS)


def servable_codecs() -> tuple[str, ...]:
    """The names that a transfer may ask for: codecs whose sizes are known before they encode."""
    return tuple(name for name, codec in _CODECS.items() if codec.servable)
