"""Which piece goes when: frames, messages, queues and state machines. No sockets, no vLLM."""

from lynx_ascend.stream.types import (
    Buffer,
    Faults,
    Kind,
    PayloadLimits,
    Piece,
    PieceKey,
    TransferId,
    TransferSink,
    TransferStats,
)

__all__ = [
    "Buffer",
    "Faults",
    "Kind",
    "PayloadLimits",
    "Piece",
    "PieceKey",
    "TransferId",
    "TransferSink",
    "TransferStats",
]
