"""Verification gives what step-by-step sampling gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.v1.sample.rejection_sampler import PLACEHOLDER_TOKEN_ID, RejectionSampler
from vllm.v1.sample.sampler import Sampler

from lynx_ascend.errors import LynxError
from lynx_ascend.vllm.sampling.rejection import CoupledRejectionSampler, accept_matching_prefix

from .sampling_lab import (
    VOCAB,
    coupler_of,
    eager,  # noqa: F401  (a fixture)
    metadata,
    samplers,
    spec_metadata,
)

pytestmark = pytest.mark.usefixtures("eager")


@given(
    st.lists(
        st.integers(0, 5).flatmap(
            lambda n: st.tuples(
                st.lists(st.integers(0, 2), min_size=n, max_size=n),
                st.lists(st.integers(0, 2), min_size=n + 1, max_size=n + 1),
            )
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=200, deadline=None)
def test_accept_matching_prefix_is_the_plain_loop(rows):
    width = max(len(drafts) for drafts, _ in rows)
    targets = torch.full((len(rows), width + 1), 1, dtype=torch.int64)  # padding that would match
    padded = torch.full((len(rows), width), 1, dtype=torch.int64)
    expected = []
    for n, (drafts, wanted) in enumerate(rows):
        targets[n, : len(wanted)] = torch.tensor(wanted)
        padded[n, : len(drafts)] = torch.tensor(drafts, dtype=torch.int64)
        kept = []
        for draft, target in zip(drafts, wanted, strict=False):
            kept.append(target)
            if draft != target:
                break
        else:
            kept.append(wanted[-1])
        expected.append(kept + [PLACEHOLDER_TOKEN_ID] * (width + 1 - len(kept)))
    counts = torch.tensor([len(drafts) for drafts, _ in rows])
    got = accept_matching_prefix(targets, padded, counts)
    assert got.dtype == torch.int32
    assert got.tolist() == expected


def sequential(
    kind, seed, base, target_logits, drafts, temperature, top_k, top_p, penalties, mode="raw_logprobs"
):
    """Tokens that step-by-step sampling gives while it follows the drafts."""
    made = []
    for n in range(len(drafts) + 1):
        coupler = coupler_of([(kind, seed)], [base + n])
        sampler, _ = samplers(coupler, mode)
        meta = metadata(
            [temperature],
            top_k=None if top_k is None else [top_k],
            top_p=None if top_p is None else [top_p],
            penalties=None if penalties is None else [penalties],
            outputs=[drafts[:n]],
        )
        made.append(int(sampler(target_logits[n : n + 1].clone(), meta).sampled_token_ids[0, 0]))
        if n == len(drafts) or made[-1] != drafts[n]:
            break
    return made


@pytest.mark.parametrize("penalties", [None, 0.7])
@pytest.mark.parametrize(("top_k", "top_p"), [(None, None), (5, None), (None, 0.7), (8, 0.9)])
@pytest.mark.parametrize("seed", range(4))
def test_verification_gives_what_step_by_step_sampling_gives(seed, top_k, top_p, penalties):
    generator = torch.Generator().manual_seed(seed)
    rows = [("greedy", None), ("coupled", 3), ("coupled", None), ("coupled", 3), ("greedy", 1)]
    temperatures = [0.0, 1.0, 0.7, 1.3, 0.0]
    bases, counts = [10, 20, 30, 40, 50], [6, 6, 3, 0, 1]
    logits = [3 * torch.randn(n + 1, VOCAB, generator=generator) for n in counts]
    drafts = []
    for n, row in enumerate(rows):
        # Mostly right drafts: follow the target, and go wrong somewhere in some rows.
        mine = []
        while len(mine) < counts[n]:
            if (seed + n) % 3 == 0 and len(mine) == counts[n] - 1:
                mine.append(0)  # behind a wrong draft anything may stand
                break
            made = sequential(
                *row, bases[n], logits[n], [*mine, -1][: counts[n]], temperatures[n], top_k, top_p, penalties
            )
            wrong = (seed + n) % 3 == 0 and len(mine) == counts[n] - 2
            mine.append((made[len(mine)] + wrong) % VOCAB)
        drafts.append(mine)
    expected = [
        sequential(*row, base, target, mine, temperature, top_k, top_p, penalties)
        for row, base, target, mine, temperature in zip(
            rows, bases, logits, drafts, temperatures, strict=True
        )
    ]
    ids = [str(n) for n in range(len(rows))]
    # A request without a seed is seeded by its id: as in `sequential`, where it is alone and called "0".
    ids[2], ids[0] = "0", "2"
    _, rejection = samplers(coupler_of(rows, bases, ids))
    meta = metadata(
        temperatures,
        top_k=None if top_k is None else [top_k] * 5,
        top_p=None if top_p is None else [top_p] * 5,
        penalties=None if penalties is None else [penalties] * 5,
        specs=drafts,
    )
    out = rejection(spec_metadata(drafts), None, torch.cat(logits), meta)
    got = [[t for t in row if t != PLACEHOLDER_TOKEN_ID] for row in out.sampled_token_ids.tolist()]
    assert got == expected
    assert out.logprobs_tensors is None
    lengths = {len(tokens) for tokens in got}
    assert len(lengths) > 1


def test_an_all_greedy_batch_equals_vllms_own_rejection_sampler():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(9, VOCAB, generator=generator)
    best = logits.argmax(-1).tolist()
    drafts = [best[0:3], [best[4], 1 if best[5] != 1 else 2], [best[7]]]
    _, rejection = samplers(coupler_of([("greedy", None)] * 3, [5, 6, 7]))
    meta = metadata([0.0] * 3, specs=drafts)
    out = rejection(spec_metadata(drafts), None, logits.clone(), meta).sampled_token_ids
    assert out.tolist() == [best[0:4], [best[4], best[5], -1, -1], [best[7], best[8], -1, -1]]


@pytest.mark.parametrize("mode", ["raw_logprobs", "processed_logprobs", "raw_logits"])
@pytest.mark.parametrize("penalties", [None, 0.7])
def test_logprobs_are_those_of_the_target(mode, penalties):
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(6, VOCAB, generator=generator)
    rows, bases, temperatures = [("coupled", 3), ("coupled", 4)], [20, 30], [0.8, 1.0]
    drafts = [[1, 2, 3], [4]]
    outputs = [[], []]
    _, rejection = samplers(coupler_of(rows, bases), mode)
    pens = None if penalties is None else [penalties] * 2
    meta = metadata(temperatures, penalties=pens, specs=drafts, outputs=outputs, logprobs=2)
    out = rejection(spec_metadata(drafts), None, logits.clone(), meta)
    tokens, tensors = out.sampled_token_ids, out.logprobs_tensors
    assert tokens.shape == (2, 4)
    assert tensors.logprob_token_ids.shape == tensors.logprobs.shape == (8, 3)
    parsed, lists = RejectionSampler.parse_output(tokens, VOCAB, (), tensors)
    for row, (start, made) in enumerate(zip([0, 4], parsed, strict=True)):
        kept = lists.slice_request(row, len(made))
        assert kept.logprob_token_ids[:, 0].tolist() == made
        # The first token of a row depends on no draft: plain sampling gives its logprobs.
        sampler, _ = samplers(coupler_of([rows[row]], [bases[row]]), mode)
        alone = sampler(
            logits[start : start + 1].clone(),
            metadata([temperatures[row]], penalties=None if pens is None else [penalties], logprobs=2),
        )
        assert alone.sampled_token_ids[0, 0] == made[0]
        np.testing.assert_allclose(kept.logprobs[0], alone.logprobs_tensors.logprobs[0], rtol=1e-5)


def test_plain_rows_without_drafts_keep_their_generator_in_a_verification_step():
    logits = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(2))
    rows = [("plain", 1), ("coupled", 3)]
    _, rejection = samplers(coupler_of(rows, [5, 6]))
    meta = metadata([1.0, 1.0], generators={0: torch.Generator().manual_seed(9)}, specs=[[], [1, 2]])
    out = rejection(spec_metadata([[], [1, 2]]), None, logits.clone(), meta).sampled_token_ids
    alone = Sampler()(logits[:1].clone(), metadata([1.0], generators={0: torch.Generator().manual_seed(9)}))
    assert out[0].tolist() == [int(alone.sampled_token_ids[0, 0]), -1, -1]


def test_too_many_drafts_are_an_error_that_says_so():
    _, rejection = samplers(coupler_of([("greedy", None)], [5]))
    drafts = [[1] * 129]
    with pytest.raises(LynxError, match="max_draft"):
        rejection(spec_metadata(drafts), None, torch.zeros(130, VOCAB), metadata([0.0], specs=drafts))


def test_a_sampler_that_was_not_fitted_is_an_error_that_says_so():
    rejection = CoupledRejectionSampler(Sampler(), coupler_of([("greedy", None)], [5]), torch.device("cpu"))
    with pytest.raises(LynxError, match="Lynx worker"):
        rejection(spec_metadata([[1]]), None, torch.zeros(2, VOCAB), metadata([0.0], specs=[[1]]))


def test_the_draft_counts_are_forgotten_after_a_verification():
    sampler, rejection = samplers(coupler_of([("coupled", 3)], [5]))
    rejection(spec_metadata([[1]]), None, torch.zeros(2, VOCAB), metadata([1.0], specs=[[1]]))
    assert sampler.topk_topp_sampler.num_draft_tokens is None
