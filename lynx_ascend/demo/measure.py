"""One measured request: the paper's TTFT and TTkT from the times that the engine returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from lynx_ascend.demo.errors import DemoError


class Transfer(msgspec.Struct, frozen=True):
    """What D saw of one transfer. Payload bytes, epoch seconds in the order in which they happen, and how many
    seconds it spent decoding what came as anchor.
    """

    anchor_bytes: float
    residual_bytes: float
    t_subscribed: float
    t_first_byte: float
    t_anchor_done: float
    t_anchor_applied: float
    t_residual_done: float
    t_full_applied: float
    decode_anchor_s: float = 0.0

    @property
    def bytes(self) -> int:
        return int(self.anchor_bytes + self.residual_bytes)


class TokenTimes(msgspec.Struct, frozen=True):
    """`token_times` of a response: epoch seconds per output token, the first token included."""

    admitted: float
    produced: list[float]
    verified: list[float]
    first_token_from_prefill: bool
    drafted: int
    accepted: int
    transfer: Transfer
    verify_started: float | None = None


def parse_token_times(params: object) -> TokenTimes:
    """Reads the response's `kv_transfer_params`; `DemoError` if they hold no times of a finished transfer."""
    times = params.get("token_times") if isinstance(params, dict) else None
    if times is None:
        raise DemoError(
            "the answer has no token times: the decode engine computed the prompt itself; "
            "its log says why (--keep-logs DIR)"
        )
    try:
        return msgspec.convert(times, TokenTimes)
    except msgspec.ValidationError as error:
        raise DemoError(
            f"the KV transfer of a request did not finish ({error}); "
            "the decode engine's log says why (--keep-logs DIR)"
        ) from error


@dataclass(frozen=True, slots=True)
class Run:
    """One request with one codec. `t_request` is the client's clock just before it was sent, `t_answer` just after.

    `encode_s`: seconds that P spent encoding it, most of them while it was sending what was encoded before.
    """

    codec: str
    repetition: int
    t_request: float
    t_answer: float
    prompt_tokens: int
    token_ids: tuple[int, ...]
    text: str
    times: TokenTimes
    encode_s: float = 0.0

    @property
    def ttft(self) -> float:
        """Seconds until the first token."""
        return self.times.produced[0] - self.t_request

    @property
    def codec_s(self) -> float:
        """Seconds of work of the codec before the first token of D: encoding, and decoding the anchor."""
        return self.encode_s + self.times.transfer.decode_anchor_s

    def produced(self, k: int) -> float | None:
        """TTkT: seconds until the k-th token of D was produced and never taken back; None if there are fewer."""
        return self._at(self.times.produced, k)

    def verified(self, k: int) -> float | None:
        """TTkT: seconds until the k-th token of D was known to be final."""
        return self._at(self.times.verified, k)

    def _at(self, times: Sequence[float], k: int) -> float | None:
        # P's token is exact before any transfer and is not counted: it is TTFT.
        index = k if self.times.first_token_from_prefill else k - 1
        return times[index] - self.t_request if index < len(times) else None
