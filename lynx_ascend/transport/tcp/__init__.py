"""The TCP transport: works anywhere, always correct; three sockets a link."""

from typing import TYPE_CHECKING

from lynx_ascend.transport.tcp.client import TransferClient
from lynx_ascend.transport.tcp.config import ClientConfig, ServerConfig
from lynx_ascend.transport.tcp.incoming_transfer import IncomingTransfer
from lynx_ascend.transport.tcp.outgoing_transfer import OutgoingTransfer
from lynx_ascend.transport.tcp.server import TransferServer

__all__ = [
    "ClientConfig",
    "IncomingTransfer",
    "OutgoingTransfer",
    "ServerConfig",
    "TransferClient",
    "TransferServer",
]

if TYPE_CHECKING:  # mypy holds the TCP transport to the interface
    from lynx_ascend.transport import base

    _source: type[base.TransferSource] = TransferServer
    _receiver: type[base.TransferReceiver] = TransferClient
    _outgoing: type[base.OutgoingHandle] = OutgoingTransfer
    _incoming: type[base.IncomingHandle] = IncomingTransfer
