"""D's state machine: limits before memory, duplicates, resends, completeness in any order."""

import pytest

from lynx_ascend.errors import ProtocolError
from lynx_ascend.stream.frames import FrameHeader
from lynx_ascend.stream.incoming import IncomingState, Verdict
from lynx_ascend.stream.types import Kind, PieceKey, TransferId


class Limits:
    def max_bytes(self, kind, key):
        if key.layer >= 4:
            raise ProtocolError("layer out of range")
        return 100


def header(layer, kind=Kind.ANCHOR, length=10):
    return FrameHeader(kind, 0, bytes(16), 1, PieceKey(layer, 0, 0, 1, 0, 1), length, 0)


@pytest.fixture
def state():
    return IncomingState(TransferId("0" * 32, 1), 250, Limits())


def test_complete_only_when_both_classes_and_the_counts_are_there(state):
    state.landed(header(0), True, 1.0)
    assert not state.complete
    state.accepted(1)
    state.note_time(2.0)
    assert state.anchors_complete
    assert state.stats.t_anchor_done == 2.0
    state.landed(header(0, Kind.RESIDUAL), True, 3.0)
    assert not state.complete
    state.finished(1, 1)
    assert state.complete
    assert (state.stats.anchor_bytes, state.stats.residual_bytes, state.received) == (10, 10, 20)


def test_nothing_to_send_is_complete(state):
    state.finished(0, 0)
    assert state.complete


@pytest.mark.parametrize(
    ("head", "text"),
    [(header(0, length=101), "at most 100"), (header(4), "out of range"), (header(1), "twice")],
)
def test_admit_refuses(state, head, text):
    state.landed(header(1), True, 0.0)
    with pytest.raises(ProtocolError, match=text):
        state.admit(head)


def test_grant_is_the_roof(state):
    for layer in range(2):
        state.admit(header(layer, length=100))
        state.landed(header(layer, length=100), True, 0.0)
    with pytest.raises(ProtocolError, match="granted"):
        state.admit(header(2, length=51))


def test_more_than_announced(state):
    state.finished(1, 0)
    state.landed(header(0), True, 0.0)
    with pytest.raises(ProtocolError, match="announced"):
        state.admit(header(1))
    with pytest.raises(ProtocolError, match="announced"):
        state.admit(header(1, Kind.RESIDUAL))


def test_one_nack_a_payload(state):
    assert state.landed(header(0), False, 0.0) is Verdict.NACK
    assert state.landed(header(0), True, 0.0) is Verdict.DELIVER
    assert state.landed(header(1), False, 0.0) is Verdict.NACK
    assert state.landed(header(1), False, 0.0) is Verdict.FAIL


def test_counts_must_not_change(state):
    state.accepted(3)
    with pytest.raises(ProtocolError):
        state.finished(4, 0)
