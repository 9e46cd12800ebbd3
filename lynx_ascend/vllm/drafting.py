"""The state of one request between its anchor and its verification. Pure: knows requests only by what it is told."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from lynx_ascend.vllm.sampling.coupling import SAMPLING_EPS


class Phase(Enum):
    """DRAFT: tokens are made on the anchor and hidden. VERIFY: submitted. VERIFYING: in this step's forward."""

    DRAFT = "draft"
    VERIFY = "verify"
    VERIFYING = "verifying"


@dataclass(slots=True)
class DraftState:
    """Drafts of one request.

    `base`: tokens that are final (prompt, and P's first token when it was taken). `limit`: most drafts to make.
    """

    base: int
    limit: int
    phase: Phase = Phase.DRAFT
    refined: bool = False
    parked: bool = False
    drafts: list[int] = field(default_factory=list)
    draft_times: list[float] = field(default_factory=list)

    def add(self, token: int, stops: bool) -> bool:
        """Keep one draft; return whether the next one may be made (else the request is parked)."""
        self.drafts.append(token)
        self.draft_times.append(time.time())
        self.parked = stops or len(self.drafts) >= self.limit
        return not self.parked


def draft_limit(max_draft: int, remaining: int, base: int, max_model_len: int) -> int:
    """Drafts that can be verified: the request's limit, what it may still emit, what fits into the model's length."""
    return min(max_draft, remaining, max_model_len - base)


def may_draft(request: Any) -> bool:
    """Whether a request's drafts can be verified exactly; others wait for the full-precision KV.

    Structured output advances a grammar per token; min_p, logit_bias and custom logits processors are not applied to
    draft rows by vLLM's rejection sampler; prompt logprobs need the prompt's forward.
    """
    params = request.sampling_params
    if params is None or request.use_structured_output or params.prompt_logprobs is not None:
        return False
    if params.logit_bias or (params.min_p > 0 and params.temperature >= SAMPLING_EPS):
        return False
    if params.thinking_token_budget is not None or params.logprob_token_ids:
        return False
    return not getattr(params, "logits_processors", None)


def may_take_first_token(request: Any) -> bool:
    """Whether P's token can be the first output: D must not need anything of it that only D can compute.

    Logprobs travel with no token; min_tokens is removed by proxies before P sees the request; a grammar must be
    advanced by the engine that owns it.
    """
    params = request.sampling_params
    if params is None or request.use_structured_output:
        return False
    if params.logprobs is not None or params.prompt_logprobs is not None or params.logprob_token_ids:
        return False
    return params.min_tokens == 0 and params.thinking_token_budget is None
