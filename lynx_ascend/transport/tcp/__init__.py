"""The TCP transport: works anywhere, always correct; three sockets a link."""

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
