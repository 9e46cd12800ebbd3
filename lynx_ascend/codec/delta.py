"""Rows of channels as CacheGen codes them: anchor tokens, and the others as deltas against them, arithmetic coded.

Bytes of ``tokens`` rows: scales f16[tokens] | bells u8[dim][2] of the anchor tokens | tables u8[dim][2 * reach + 1] of
the deltas, if there are any | coded symbols u32[...]: the anchor tokens channel by channel, then the deltas.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lynx_ascend.codec import entropy
from lynx_ascend.codec.float16 import FLOAT16_MAX, round_up
from lynx_ascend.errors import CodecError

GROUP = 10
ANCHOR_REACH = 127  # 8 bits


def encode_rows(rows: Tensor, reach: int) -> bytes | None:
    """Encode float32 ``[tokens, dim]`` of the host, the deltas with symbols of -reach to reach.

    None if a value, or the scale of a delta, has no finite float16.
    """
    if not bool((rows.abs() <= FLOAT16_MAX).all()):  # written so that a NaN fails
        return None
    delta = _delta_rows(len(rows))
    scale = _scales(rows)
    anchors = _symbols(rows[::GROUP], scale[::GROUP], ANCHOR_REACH)
    deltas = (rows - _base(anchors, scale, len(rows)))[delta]
    scale[delta] = _scales(deltas)
    if not bool(scale.isfinite().all()):
        return None
    front, back = _columns(anchors), _columns(_symbols(deltas, scale[delta], reach))
    bells = [entropy.bell(column) for column in front]
    tables = [entropy.table(column, 2 * reach + 1) for column in back]
    models = [*map(entropy.bell_model, bells), *map(entropy.table_model, tables)]
    coded = entropy.encode(zip(front + back, models, strict=True))
    return b"".join((scale.numpy().tobytes(), *map(bytes, bells), *map(bytes, tables), coded))


def decode_rows(data: bytes, tokens: int, dim: int, reach: int) -> Tensor:
    """Undo ``encode_rows``: float32 ``[tokens, dim]``. Raises CodecError if the bytes do not fit."""
    anchors = -(-tokens // GROUP)
    width = 2 * reach + 1 if tokens > anchors else 0
    parts = np.cumsum([2 * tokens, 2 * dim, width * dim])
    if len(data) < parts[-1]:
        raise CodecError(f"the anchor has {len(data)} bytes for rows whose tables take {parts[-1]}")
    scale = torch.frombuffer(bytearray(data[: parts[0]]), dtype=torch.float16)
    bells = np.frombuffer(data[parts[0] : parts[1]], np.uint8).reshape(dim, 2)
    tables = np.frombuffer(data[parts[1] : parts[2]], np.uint8).reshape(dim if width else 0, width)
    columns = [(anchors, entropy.bell_model(code)) for code in bells]
    columns += [(tokens - anchors, entropy.table_model(weights)) for weights in tables]
    symbols = entropy.decode(data[parts[2] :], columns)
    rows = _base(_from_columns(symbols[:dim]), scale, tokens)
    if width:
        delta = _delta_rows(tokens)
        rows[delta] += _values(_from_columns(symbols[dim:]), scale[delta], reach)
    return rows


def _scales(rows: Tensor) -> Tensor:
    """The largest magnitude of each row, rounded up to float16 ``[tokens]``."""
    return round_up(rows.abs().amax(1))


def _symbols(rows: Tensor, scale: Tensor, reach: int) -> Tensor:
    """int64 ``[tokens, dim]`` from 0 to ``2 * reach``."""
    width = torch.where(scale == 0, 1.0, scale.float()).unsqueeze(1)
    return (rows / width * reach).round().long() + reach


def _values(symbols: Tensor, scale: Tensor, reach: int) -> Tensor:
    return (symbols - reach).float() / reach * scale.float().unsqueeze(1)


def _base(anchors: Tensor, scale: Tensor, tokens: int) -> Tensor:
    """What each token is a delta against: the decoded anchor token of its group, ``[tokens, dim]``."""
    return _values(anchors, scale[::GROUP], ANCHOR_REACH).repeat_interleave(GROUP, 0)[:tokens]


def _delta_rows(tokens: int) -> Tensor:
    """bool ``[tokens]``: which are no anchor tokens."""
    return torch.arange(tokens) % GROUP > 0


def _columns(symbols: Tensor) -> list[NDArray[Any]]:
    return list(symbols.numpy().T) if len(symbols) else []


def _from_columns(columns: list[NDArray[np.int32]]) -> Tensor:
    return torch.from_numpy(np.stack(columns, 1))
