"""What both sides prove before anything else: version, layout, the shared token. No sockets.

Order on each socket: preambles both ways with D's Hello behind its own; Challenge or Refused; Proof;
Welcome or Refused. The two proofs differ by their label, so neither can be replayed as the other.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

from lynx_ascend.errors import ProtocolError
from lynx_ascend.stream.messages import PROTOCOL_VERSION, Hello

_PREAMBLE = struct.Struct("<4sHH")
PREAMBLE_MAGIC = b"LYNX"
PREAMBLE_BYTES = _PREAMBLE.size
ROLE_NAMES = ("control", "anchor", "residual")


def preamble(version: int = PROTOCOL_VERSION) -> bytes:
    """The 8 bytes that never change between versions: magic, version, zero."""
    return _PREAMBLE.pack(PREAMBLE_MAGIC, version, 0)


def read_preamble(data: bytes) -> int:
    """The peer's protocol version; ProtocolError when the peer is something else altogether."""
    magic, version, zero = _PREAMBLE.unpack(data)
    if magic != PREAMBLE_MAGIC or zero:
        raise ProtocolError("the peer does not speak the Lynx transfer protocol")
    return version


def version_refusal(peer: int, own: int = PROTOCOL_VERSION) -> str | None:
    if peer == own:
        return None
    both = f"decode side speaks {peer}, prefill side speaks {own}"
    return f"protocol version mismatch: {both}; install the same release"


def layout_refusal(peer: str, own: str) -> str | None:
    if peer == own:
        return None
    return (
        f"layout hash mismatch: decode side has {peer!r}, prefill side has {own!r}; "
        "model, KV dtype, codec and page geometry must agree"
    )


def prove(label: str, token: str | None, hello: Hello, server_nonce: bytes) -> bytes:
    """HMAC-SHA256 over the label, both nonces, link, role and layout. `label` is "client" or "server"."""
    text = (
        b"\0".join(
            (b"lynx-transfer", label.encode(), hello.link, bytes([hello.role]), hello.nonce, server_nonce)
        )
        + hello.layout_hash.encode()
    )
    return hmac.new((token or "").encode(), text, hashlib.sha256).digest()


def proof_fits(mac: bytes, label: str, token: str | None, hello: Hello, server_nonce: bytes) -> bool:
    """Constant-time comparison."""
    return hmac.compare_digest(mac, prove(label, token, hello, server_nonce))
