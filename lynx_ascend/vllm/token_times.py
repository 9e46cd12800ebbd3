"""When each token of a request was produced and when it was known to be final (the paper's TTkT)."""

from __future__ import annotations

import time
from typing import Any


class TokenTimes:
    """Epoch seconds per output token of one request, first token included.

    produced: when D (for the first token: P) made the token that stands in the final text, never taken back since.
    verified: when it was known to be final; without drafting the two are one.
    """

    def __init__(self) -> None:
        self.admitted = time.time()
        self.produced: list[float] = []
        self.verified: list[float] = []
        self.drafted = 0
        self.accepted = 0
        self.verify_started: float | None = None

    def add(self, count: int, produced: list[float] | None = None) -> None:
        """Note `count` final tokens; `produced` holds the draft times of the first of them."""
        now = time.time()
        early = list(produced or [])[:count]
        self.produced.extend(early + [now] * (count - len(early)))
        self.verified.extend([now] * count)

    def to_params(self, facts: dict[str, float], first_token_from_prefill: bool) -> dict[str, Any]:
        """The value of `token_times` in the response's kv_transfer_params."""
        return {
            "admitted": self.admitted,
            "produced": self.produced,
            "verified": self.verified,
            "first_token_from_prefill": first_token_from_prefill,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "verify_started": self.verify_started,
            "transfer": facts,
        }
