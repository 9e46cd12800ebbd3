"""Control messages: round trips, limits, and nothing but ProtocolError from foreign bytes."""

import struct

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lynx_ascend.errors import ProtocolError
from lynx_ascend.stream import handshake
from lynx_ascend.stream import messages as m

ID = bytes(range(16))
ALL = [
    m.Hello("layout", 2, ID, bytes(32)),
    m.Challenge("layout", bytes(32)),
    m.Proof(bytes(32)),
    m.Welcome(bytes(32), 7, 30_000),
    m.Refused("token", "no"),
    m.Subscribe(ID, 7, 1 << 40),
    m.Cancel(ID, 7, "abort"),
    m.Nack(ID, 7, (1, 2, 3, 4, 5, 6, 7)),
    m.Ack(2, 9),
    m.Released(ID, 7),
    m.Heartbeat(3, [ID]),
    m.Accepted(ID, 7, 64, 1 << 20),
    m.Finished(ID, 7, 64, 63),
    m.Failed(ID, 7, "stale", "gone"),
]


def test_round_trip_in_any_cutting():
    wire = b"".join(m.pack(message) for message in ALL)
    for step in (1, 7, len(wire)):
        reader = m.MessageReader()
        got = [msg for at in range(0, len(wire), step) for msg in reader.feed(wire[at : at + step])]
        assert got == ALL


def test_golden_subscribe():
    assert m.pack(m.Subscribe(ID, 7, 9)).hex() == "1f00000094a9537562736372696265c410" + ID.hex() + "0709"


@pytest.mark.parametrize("length", [0, m.MAX_CONTROL + 1, 0xFFFFFFFF])
def test_length_is_checked_before_anything_is_kept(length):
    with pytest.raises(ProtocolError):
        list(m.MessageReader().feed(struct.pack("<I", length)))


@pytest.mark.parametrize(
    "body",
    [
        ["Subscribe", ID[:15], 7, 9],
        ["Subscribe", ID, 1 << 32, 9],
        ["Subscribe", ID, 7, -1],
        ["Subscribe", ID, 7, 9, "more"],
        ["Subscribe", ID, 7],
        ["Nonsense", ID],
        ["Nack", ID, 7, [3, 0, 0, 0, 0, 0, 0]],
        ["Cancel", ID, 7, "x" * 401],
        ["Heartbeat", 1, [ID] * 1025],
        {"a": 1},
    ],
)
def test_malformed_messages(body):
    with pytest.raises(ProtocolError):
        m.unpack(msgspec.msgpack.encode(body))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes(data):
    try:
        for message in m.MessageReader().feed(data):
            assert isinstance(message, m.Message)
    except ProtocolError:
        pass


def test_deep_nesting_is_a_protocol_error():
    with pytest.raises(ProtocolError):
        m.unpack(b"\x91" * 60_000)


def test_proofs_differ_by_side_token_nonce_and_role():
    hello = m.Hello("layout", 0, ID, b"c" * 32)
    nonce = b"s" * 32
    mac = handshake.prove("client", "secret", hello, nonce)
    assert handshake.proof_fits(mac, "client", "secret", hello, nonce)
    assert not handshake.proof_fits(mac, "server", "secret", hello, nonce)
    assert not handshake.proof_fits(mac, "client", "other", hello, nonce)
    assert not handshake.proof_fits(mac, "client", None, hello, nonce)
    assert not handshake.proof_fits(mac, "client", "secret", hello, b"t" * 32)
    other_role = m.Hello("layout", 1, ID, b"c" * 32)
    assert not handshake.proof_fits(mac, "client", "secret", other_role, nonce)


def test_refusals_name_both_sides():
    assert "decode side speaks 2, prefill side speaks 1" in handshake.version_refusal(2, 1)
    text = handshake.layout_refusal("aaa", "bbb")
    assert "'aaa'" in text
    assert "'bbb'" in text
    with pytest.raises(ProtocolError):
        handshake.read_preamble(b"GET / HT")
