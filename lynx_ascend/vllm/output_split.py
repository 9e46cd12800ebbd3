"""Tokens that a verification confirms at once, handed to the front end one at a time.

vLLM looks for stop strings once per output (vllm/v1/engine/detokenizer.py:99): of several tokens in one output it would
return those behind the match too, and with several stop strings it might take one that stands later in the text. One
token an output gives what a request that never drafted gets; outputs behind the match are dropped there.
"""

from __future__ import annotations

from typing import Any

import msgspec
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.outputs import LogprobsLists


def one_token_each(output: EngineCoreOutput) -> list[EngineCoreOutput]:
    """Split an output of several tokens; what belongs to the request's end stays with the last of them."""
    tokens = output.new_token_ids
    if len(tokens) < 2:
        return [output]
    first = [
        EngineCoreOutput(
            request_id=output.request_id,
            new_token_ids=[token],
            new_logprobs=_row(output.new_logprobs, index),
            trace_headers=output.trace_headers,
        )
        for index, token in enumerate(tokens[:-1])
    ]
    last: dict[str, Any] = {
        "new_token_ids": tokens[-1:],
        "new_logprobs": _row(output.new_logprobs, len(tokens) - 1),
    }
    return [*first, msgspec.structs.replace(output, **last)]


def _row(logprobs: LogprobsLists | None, index: int) -> LogprobsLists | None:
    if logprobs is None:
        return None
    rows = slice(index, index + 1)
    return LogprobsLists(
        logprobs.logprob_token_ids[rows], logprobs.logprobs[rows], logprobs.sampled_token_ranks[rows], None
    )
