"""Which frame goes next on a link: anchors before residuals, older transfers first. Pure; the owner locks."""

from __future__ import annotations

import math
from bisect import insort

from lynx_ascend.stream.outgoing import OutgoingState
from lynx_ascend.stream.send_frame import SendFrame
from lynx_ascend.stream.types import Kind


class SendQueue:
    """Holds the transfers that have something ready, by class and age."""

    def __init__(self) -> None:
        self._pending: dict[Kind, list[OutgoingState]] = {kind: [] for kind in Kind}

    def mark(self, transfer: OutgoingState) -> None:
        """The transfer has (perhaps) new ready payloads."""
        for kind, pending in self._pending.items():
            if transfer.ready[kind] and transfer not in pending:
                insort(pending, transfer, key=_age)

    def remove(self, transfer: OutgoingState) -> None:
        for pending in self._pending.values():
            if transfer in pending:
                pending.remove(transfer)

    def next(self, kind: Kind, now: float) -> SendFrame | None:
        """The oldest transfer's next frame of the class. TransferError from that transfer's credit check."""
        pending = self._pending[kind]
        for transfer in pending:
            if transfer.gate(kind) > now:
                continue
            frame = transfer.next_frame(kind)
            if not transfer.ready[kind]:
                pending.remove(transfer)
            return frame
        return None

    def wait_s(self, now: float) -> float:
        """Seconds until a delayed class opens; infinity when none is delayed (or only by events)."""
        gates = [transfer.gate(kind) for kind, pending in self._pending.items() for transfer in pending]
        return min((gate - now for gate in gates if gate > now), default=math.inf)


def _age(transfer: OutgoingState) -> int:
    return transfer.order
