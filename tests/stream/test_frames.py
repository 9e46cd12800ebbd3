"""The bulk frame: golden bytes, every field checked, no crash and no allocation from foreign bytes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lynx_ascend.errors import ProtocolError
from lynx_ascend.stream.frame_reader import FrameReader
from lynx_ascend.stream.frames import (
    HEADER_BYTES,
    FrameHeader,
    as_bytes_view,
    crc32c,
    decode_header,
    encode_header,
)
from lynx_ascend.stream.types import Kind, PieceKey

KEY = PieceKey(layer=1, plane=2, first_page=3, pages=4, first_head=5, heads=6)
PAYLOAD = np.frombuffer(b"123456789", np.uint8)
HEADER = FrameHeader(Kind.RESIDUAL, 1, bytes(range(16)), 0x01020304, KEY, 9, crc32c(PAYLOAD))
GOLDEN = (
    "4c594e46" "01" "02" "0100" "000102030405060708090a0b0c0d0e0f" "04030201" "0100" "0200" "03000000"
    "04000000" "0500" "0600" "09000000" "839206e3"
)  # fmt: skip


def reader(limit=1 << 16):
    asked = []

    def allocate(header):
        asked.append(header.length)
        return np.empty(header.length, np.uint8) if header.length <= limit else None

    return FrameReader(allocate), asked


def push(frames, data):
    """Feed bytes as a socket would."""
    landed = []
    data = memoryview(data)
    while data:
        n = 0
        for view in frames.views():
            take = min(len(view), len(data) - n)
            view[:take] = data[n : n + take]
            n += take
        assert n > 0
        landed += frames.filled(n)
        data = data[n:]
    return landed


def test_golden_bytes():
    raw = encode_header(HEADER)
    assert len(raw) == HEADER_BYTES == 56
    assert raw[:52].hex() == GOLDEN
    assert decode_header(raw) == HEADER


def test_every_flipped_bit_of_the_header_is_noticed():
    raw = encode_header(HEADER)
    for bit in range(8 * HEADER_BYTES):
        bad = bytearray(raw)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProtocolError):
            decode_header(bad)


@pytest.mark.parametrize("field", ["layer", "plane", "first_head", "heads"])
def test_narrow_fields_are_not_wrapped(field):
    with pytest.raises(ProtocolError):
        encode_header(HEADER._replace(key=KEY._replace(**{field: 1 << 16})))


def test_short_transfer_id_is_not_padded():
    with pytest.raises(ProtocolError):
        encode_header(HEADER._replace(transfer=b"x"))


def test_buffers_are_not_copied():
    array = np.zeros((4, 8), np.uint8)
    view = as_bytes_view(array)
    array[0, 0] = 7
    assert view[0] == 7
    assert view.shape == (32,)
    with pytest.raises(ProtocolError):
        as_bytes_view(array[:, ::2])


def test_crc_in_steps_is_the_crc():
    data = np.arange(3 << 20, dtype=np.uint32).view(np.uint8)
    assert crc32c(PAYLOAD) == 0xE3069283
    assert crc32c(data[1000:], crc32c(data[:1000])) == crc32c(data)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=6), st.lists(st.integers(1, 400), min_size=1, max_size=20))
def test_any_cutting_gives_the_same_frames(payloads, cuts):
    wire = b""
    for payload in payloads:
        data = np.frombuffer(payload, np.uint8) if payload else np.empty(0, np.uint8)
        wire += encode_header(HEADER._replace(length=len(payload), crc=crc32c(data))) + payload
    frames, _ = reader()
    landed, at, turn = [], 0, 0
    while at < len(wire):
        step = cuts[turn % len(cuts)]
        landed += push(frames, wire[at : at + step])
        at, turn = at + step, turn + 1
    assert [frame.payload.tobytes() for frame in landed] == payloads
    assert all(frame.intact for frame in landed)
    assert not frames.in_frame


def test_unwanted_payload_is_skipped_without_memory_of_its_size():
    frames, asked = reader(limit=10)
    big = encode_header(HEADER._replace(length=1 << 20)) + bytes(1 << 20)
    landed = push(frames, big + encode_header(HEADER) + PAYLOAD.tobytes())
    assert [frame.payload is None for frame in landed] == [True, False]
    assert sum(len(view) for view in frames.views()) <= (64 << 10) + HEADER_BYTES
    assert asked == [1 << 20, 9]


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=HEADER_BYTES, max_size=400))
def test_random_bytes_are_a_protocol_error(data):
    frames, asked = reader()
    with pytest.raises(ProtocolError):
        push(frames, data)
    assert asked == []


@settings(max_examples=200, deadline=None)
@given(st.integers(0, HEADER_BYTES - 1), st.integers(1, 255))
def test_a_damaged_payload_or_header_is_never_taken(at, flip):
    raw = bytearray(encode_header(HEADER))
    raw[at] ^= flip
    frames, asked = reader()
    with pytest.raises(ProtocolError):
        push(frames, raw)
    assert asked == []
