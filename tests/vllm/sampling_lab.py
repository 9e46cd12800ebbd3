"""Batches, metadata and samplers for the tests of coupled sampling."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from vllm.v1.sample import sampler as stock_sampler
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.ops import topk_topp_sampler
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from lynx_ascend.vllm.sampling.coupling import Coupler
from lynx_ascend.vllm.sampling.rejection import CoupledRejectionSampler
from lynx_ascend.vllm.sampling.topk_topp import CoupledTopKTopPSampler

VOCAB = 50
HANDLE = {"kv_transfer_params": {"do_remote_prefill": True, "transfer_id": "0" * 32}}


@pytest.fixture
def eager(monkeypatch):
    """What vLLM compiles at its first use, for minutes on a busy machine, runs as it is written."""

    def sample(logits):
        probs = logits.softmax(dim=-1, dtype=torch.float32)
        return probs.div(torch.empty_like(probs).exponential_()).argmax(dim=-1)

    monkeypatch.setattr(topk_topp_sampler, "compiled_random_sample", sample)
    monkeypatch.setattr(stock_sampler, "batched_count_greater_than", lambda x, values: (x >= values).sum(-1))


class Runner:
    """The part of a model runner that the coupler reads."""

    def __init__(self, req_ids, positions):
        self.input_batch = SimpleNamespace(
            req_id_to_index={req_id: n for n, req_id in enumerate(req_ids)},
            num_tokens_no_spec=np.array(positions, dtype=np.int32),
        )


def coupler_of(rows, positions, req_ids=None):
    """A coupler for rows given as (kind, seed): kind is greedy, coupled or plain."""
    req_ids = req_ids or [str(n) for n in range(len(rows))]
    coupler = Coupler(Runner(req_ids, positions))
    for req_id, (kind, seed) in zip(req_ids, rows, strict=True):
        coupler.track(
            req_id,
            SimpleNamespace(
                temperature=0.0 if kind == "greedy" else 1.0,
                seed=seed,
                extra_args=None if kind == "plain" else HANDLE,
            ),
        )
    return coupler


def metadata(temperatures, *, top_k=None, top_p=None, penalties=None, outputs=None, specs=None, logprobs=None,
             generators=None):  # fmt: skip
    rows = len(temperatures)
    temperature = torch.tensor(temperatures)
    ones = torch.ones(rows)
    return SamplingMetadata(
        temperature=None if not any(temperatures) else temperature,
        all_greedy=not any(temperatures),
        all_random=all(temperatures),
        top_p=None if top_p is None else torch.tensor(top_p),
        top_k=None if top_k is None else torch.tensor(top_k),
        generators=generators or {},
        max_num_logprobs=logprobs,
        no_penalties=penalties is None,
        prompt_token_ids=torch.full((rows, 2), VOCAB, dtype=torch.int64),
        frequency_penalties=ones * 0 if penalties is None else torch.tensor(penalties),
        presence_penalties=ones * 0,
        repetition_penalties=ones if penalties is None else ones * 1.3,
        output_token_ids=outputs or [[] for _ in range(rows)],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
        spec_token_ids=specs,
    )


def samplers(coupler, mode="raw_logprobs"):
    sampler = Sampler(mode)
    sampler.topk_topp_sampler = CoupledTopKTopPSampler(sampler.topk_topp_sampler, coupler)
    return sampler, CoupledRejectionSampler(sampler, coupler, torch.device("cpu"))


def spec_metadata(drafts):
    meta = SpecDecodeMetadata.make_dummy(drafts, torch.device("cpu"))
    ends = np.cumsum([len(row) + 1 for row in drafts])
    bonus = set((ends - 1).tolist())
    meta.bonus_logits_indices = torch.tensor(sorted(bonus), dtype=torch.int32)
    meta.target_logits_indices = torch.tensor(
        [n for n in range(ends[-1]) if n not in bonus], dtype=torch.int32
    )
    return meta
