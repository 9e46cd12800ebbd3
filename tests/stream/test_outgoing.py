"""P's state machine and the order in which frames leave, without sockets and with a fake clock."""

import math

import numpy as np
import pytest

from lynx_ascend.errors import TransferError
from lynx_ascend.stream.frames import HEADER_BYTES, crc32c, decode_header
from lynx_ascend.stream.outgoing import OutgoingState, SendState, StagedPayload
from lynx_ascend.stream.send_queue import SendQueue
from lynx_ascend.stream.types import Faults, Kind, PieceKey, TransferId


def key(n):
    return PieceKey(n, 0, 0, 1, 0, 1)


def payload(size=10, fill=0):
    data = np.full(size, fill, np.uint8)
    return StagedPayload(data, crc32c(data))


def transfer(order, pieces=2, faults=None, put=2, residual=True, credit=1000):
    state = OutgoingState(TransferId(f"{order:032x}", 1), pieces, 1000, order, faults)
    state.subscribe("link", credit, 100.0)
    for n in range(put):
        state.stage(key(n), payload(), payload() if residual else None)
    return state


def drain(queue, now=1000.0):
    """What a link would send, anchors first."""
    out = []
    while (frame := queue.next(Kind.ANCHOR, now) or queue.next(Kind.RESIDUAL, now)) is not None:
        out.append((frame.kind.name[0], frame.owner.order, frame.key.layer))
        frame.owner.frame_sent(frame, now)
    return out


def test_anchors_of_all_transfers_before_any_residual_and_the_oldest_first():
    queue = SendQueue()
    young, old = transfer(5), transfer(2)
    queue.mark(young)
    queue.mark(old)
    assert drain(queue) == [
        ("A", 2, 0), ("A", 2, 1), ("A", 5, 0), ("A", 5, 1),
        ("R", 2, 0), ("R", 2, 1), ("R", 5, 0), ("R", 5, 1),
    ]  # fmt: skip


def test_states_follow_the_frames():
    state = transfer(1)
    queue = SendQueue()
    queue.mark(state)
    for expected in (SendState.SUBSCRIBED, SendState.ANCHOR_SENT):
        frame = queue.next(Kind.ANCHOR, 0.0)
        state.frame_sent(frame, 0.0)
        assert state.state is expected
    drain(queue)
    assert state.state is SendState.ANCHOR_SENT
    state.finished = True
    state.settle()
    assert state.state is SendState.RESIDUAL_SENT


def test_delays_open_with_the_clock():
    state = transfer(1, faults=Faults(anchor_delay_s=5, residual_delay_s=7))
    queue = SendQueue()
    queue.mark(state)
    assert queue.next(Kind.ANCHOR, 104.9) is None
    assert queue.wait_s(104.0) == pytest.approx(1.0)
    for _ in range(2):
        state.frame_sent(queue.next(Kind.ANCHOR, 105.0), 105.0)
    assert queue.next(Kind.RESIDUAL, 111.9) is None
    assert queue.next(Kind.RESIDUAL, 112.0) is not None


def test_a_stalled_or_delayed_transfer_does_not_hold_others_up():
    queue = SendQueue()
    stalled, other = transfer(1, faults=Faults(stall="anchor")), transfer(2)
    queue.mark(stalled)
    queue.mark(other)
    assert queue.next(Kind.ANCHOR, 1e9).owner is other
    assert math.isinf(stalled.gate(Kind.ANCHOR))


def test_credit_is_never_exceeded():
    state = transfer(1, credit=15)
    assert state.next_frame(Kind.ANCHOR) is not None
    with pytest.raises(TransferError, match="granted"):
        state.next_frame(Kind.ANCHOR)


def test_one_resend_then_failure():
    state = transfer(1, put=1)
    frame = state.next_frame(Kind.ANCHOR)
    state.frame_sent(frame, 0.0)
    assert state.nacked(Kind.ANCHOR, key(0))
    assert state.acked(Kind.ANCHOR, key(0)) == 0, "the count covers the damaged frame, the payload stays"
    again = state.next_frame(Kind.ANCHOR)
    assert decode_header(again.views(HEADER_BYTES)[0]).flags == 1
    assert state.spent == 10, "a resend is not charged twice"
    state.frame_sent(again, 0.0)
    assert not state.nacked(Kind.ANCHOR, key(0))


def test_ack_frees_and_unknown_names_are_ignored():
    state = transfer(1)
    assert state.staged_bytes == 40
    assert state.acked(Kind.ANCHOR, key(0)) == 10
    assert state.acked(Kind.ANCHOR, key(0)) == 0
    assert state.acked(Kind.ANCHOR, key(99)) == 0
    assert state.nacked(Kind.ANCHOR, key(99))
    assert state.staged_bytes == 30


def test_end_frees_once():
    state = transfer(1)
    assert state.end(SendState.CANCELLED, "abort") == 40
    assert state.end(SendState.FAILED, "late") == 0
    assert state.state is SendState.CANCELLED
    assert state.staged == {}


def test_an_abandoned_frame_still_has_all_its_bytes():
    state = transfer(1, put=0, credit=1 << 20)
    state.stage(key(0), payload(200_000, fill=9), None)
    frame = state.next_frame(Kind.ANCHOR)
    frame.sent = 1000
    frame.abandon()
    views = frame.views(1 << 30)
    assert sum(len(view) for view in views) == frame.total - 1000
    assert not any(any(view) for view in views)


@pytest.mark.parametrize("cap", [1, 30, HEADER_BYTES, HEADER_BYTES + 3, 1 << 20])
def test_views_in_slices_are_the_frame(cap):
    state = transfer(1, put=0)
    data = np.arange(100, dtype=np.uint8)
    state.stage(key(0), StagedPayload(data, crc32c(data)), None)
    frame = state.next_frame(Kind.ANCHOR)
    wire = b""
    while frame.sent < frame.total:
        part = b"".join(bytes(view) for view in frame.views(cap))
        assert 0 < len(part) <= cap
        wire += part
        frame.sent += len(part)
    assert wire[HEADER_BYTES:] == data.tobytes()
    assert decode_header(wire[:HEADER_BYTES]).crc == crc32c(data)


def test_corruption_is_on_the_wire_only():
    state = transfer(1, faults=Faults(corrupt="residual", corrupt_times=1), put=2)
    first = b"".join(bytes(view) for view in state.next_frame(Kind.RESIDUAL).views(999))[HEADER_BYTES:]
    second = b"".join(bytes(view) for view in state.next_frame(Kind.RESIDUAL).views(999))[HEADER_BYTES:]
    assert first != bytes(10) == second
    assert not state.staged[Kind.RESIDUAL, key(0)].data.any()


@pytest.mark.parametrize(
    ("n", "size", "text"), [(0, 10, "twice"), (7, 2000, "bytes offered"), (7, 1, "more than the 2")]
)
def test_put_is_checked(n, size, text):
    state = transfer(1, put=1 if "twice" in text or "bytes" in text else 2)
    with pytest.raises(TransferError, match=text):
        state.check_room(key(n), size)
