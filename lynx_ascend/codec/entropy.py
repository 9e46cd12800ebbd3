"""Arithmetic coding of columns of symbols, a distribution each, through ``constriction``. Knows nothing of planes."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lynx_ascend.errors import CodecError, ConfigError

_WORD = np.dtype("<u4")


def table(symbols: NDArray[Any], size: int) -> NDArray[np.uint8]:
    """How often each of ``size`` symbols occurs: uint8 ``[size]`` relative to the most frequent; 0 is never."""
    counts = np.bincount(symbols, minlength=size)
    weights = np.rint(counts * (255 / max(1, counts.max())))
    return np.where(counts > 0, np.maximum(weights, 1), 0).astype(np.uint8)


def table_model(weights: NDArray[np.uint8]) -> Any:
    """The distribution of a ``table`` over 0 to its size; a symbol of weight 0 is rare, not impossible."""
    if not weights.any():
        raise CodecError("a table of the anchor gives no symbol any weight")
    return _models().Categorical(weights.astype(np.float32), perfect=False)


def bell(symbols: NDArray[Any]) -> NDArray[np.uint8]:
    """Two bytes for symbols 0 to 254 that cluster: their mean, and their deviation as ``2^(code/8 - 2)``."""
    deviation = max(float(symbols.std()), 0.25)
    return np.array([np.rint(symbols.mean()), np.rint(8 * np.log2(deviation)) + 16], dtype=np.uint8)


def bell_model(code: NDArray[np.uint8]) -> Any:
    """The normal distribution over 0 to 254 that ``bell`` describes."""
    return _models().QuantizedGaussian(0, 254, float(code[0]), float(2.0 ** (int(code[1]) / 8 - 2)))


def encode(columns: Iterable[tuple[NDArray[Any], Any]]) -> bytes:
    """The symbols of all columns, each with its model, as one string of 32-bit words."""
    coder = _package().stream.queue.RangeEncoder()
    for symbols, model in columns:
        coder.encode(np.ascontiguousarray(symbols, dtype=np.int32), model)
    return bytes(coder.get_compressed().astype(_WORD).tobytes())


def decode(data: bytes, columns: Iterable[tuple[int, Any]]) -> list[NDArray[np.int32]]:
    """Undo ``encode``, given how many symbols each column has and its model. Raises CodecError."""
    if len(data) % _WORD.itemsize:
        raise CodecError(f"the anchor holds {len(data)} coded bytes, which are no 32-bit words")
    coder = _package().stream.queue.RangeDecoder(np.frombuffer(data, _WORD).astype(np.uint32))
    try:
        symbols = [coder.decode(model, count) for count, model in columns]
    except (AssertionError, ValueError) as error:
        raise CodecError(f"the anchor's coded symbols are damaged: {error}") from error
    if not coder.maybe_exhausted():
        raise CodecError("the anchor holds more coded bytes than symbols")
    return symbols


def _models() -> Any:
    return _package().stream.model


def _package() -> Any:
    try:
        return importlib.import_module("constriction")
    except ImportError as error:
        raise ConfigError("cachegen needs the package constriction: pip install lynx-ascend[eval]") from error
