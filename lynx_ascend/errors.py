"""The typed errors of the project. Each says what happened and what to do about it."""

from __future__ import annotations


class LynxError(Exception):
    """Base of every error that this package raises on purpose."""


class ConfigError(LynxError):
    """A setting is unknown, out of range, or does not go with another one. Raised at start-up."""


class CodecError(LynxError):
    """A plane or an encoded payload does not fit the format (shape, dtype, length, header)."""


class ProtocolError(LynxError):
    """The peer said something that the protocol does not allow; the connection is closed."""


class AuthenticationError(ProtocolError):
    """The peer could not prove that it knows the shared token."""


class TransferError(LynxError):
    """One transfer failed; the request it belongs to is recomputed locally."""

    def __init__(self, message: str, transfer_id: str | None = None) -> None:
        super().__init__(f"transfer {transfer_id}: {message}" if transfer_id else message)
        self.transfer_id = transfer_id


class StaleTransferError(TransferError):
    """The handle names a transfer of an earlier life of the peer, or one that is gone."""


class DeadlineError(TransferError):
    """A wait for the peer, for staging or for credit ended at its deadline."""


class PeerUnavailableError(TransferError):
    """The peer cannot be reached, closed the link, or its circuit breaker is open."""


class ModelError(LynxError):
    """A model folder cannot be prepared or is damaged."""
