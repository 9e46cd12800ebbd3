"""Splitting an output: every token and its logprobs once, the end with the last."""

import numpy as np
import pytest
from vllm.v1.engine import EngineCoreOutput, FinishReason
from vllm.v1.outputs import LogprobsLists

from lynx_ascend.vllm.output_split import one_token_each


@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_token_keeps_its_logprobs(count):
    table = np.arange(count * 3).reshape(count, 3)
    logprobs = LogprobsLists(table, table * 0.5, np.arange(count), None)
    output = EngineCoreOutput(
        "a",
        list(range(10, 10 + count)),
        new_logprobs=logprobs,
        finish_reason=FinishReason.LENGTH,
        kv_transfer_params={"k": 1},
    )
    parts = one_token_each(output)
    assert [part.new_token_ids for part in parts] == [[10 + n] for n in range(count)]
    for n, part in enumerate(parts):
        assert part.new_logprobs is not None
        assert part.new_logprobs.logprob_token_ids.tolist() == [table[n].tolist()]
        assert part.new_logprobs.logprobs.tolist() == [(table[n] * 0.5).tolist()]
        assert part.new_logprobs.sampled_token_ranks.tolist() == [n]
    assert [part.finish_reason for part in parts] == [None] * (count - 1) + [FinishReason.LENGTH]
    assert [part.kv_transfer_params for part in parts] == [None] * (count - 1) + [{"k": 1}]


def test_without_logprobs():
    assert [p.new_logprobs for p in one_token_each(EngineCoreOutput("a", [1, 2]))] == [None, None]
