"""Coupled sampling and verification inside vLLM's own sampler."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.v1.sample import sampler as stock_sampler
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.ops import topk_topp_sampler
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler
from vllm.v1.sample.rejection_sampler import PLACEHOLDER_TOKEN_ID, RejectionSampler
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from lynx_ascend.errors import LynxError
from lynx_ascend.vllm.sampling.coupling import Coupler
from lynx_ascend.vllm.sampling.rejection import CoupledRejectionSampler, accept_matching_prefix
from lynx_ascend.vllm.sampling.topk_topp import CoupledTopKTopPSampler

VOCAB = 50
HANDLE = {"kv_transfer_params": {"do_remote_prefill": True, "transfer_id": "0" * 32}}


@pytest.fixture(autouse=True)
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


# -- the accepted prefix


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


# -- which rows are coupled


def test_only_lynx_requests_with_a_temperature_are_coupled():
    coupler = coupler_of([("plain", 1), ("greedy", 1), ("coupled", 1)], [5, 6, 7])
    assert [coupler.tracks(str(n)) for n in range(3)] == [False, False, True]
    rows = coupler.rows()
    assert (rows.rows.tolist(), rows.positions.tolist()) == ([2], [7])
    coupler.track("pooling", None)
    coupler.forget(["2", "never"])
    assert coupler.rows() is None


def test_a_request_that_is_not_in_the_batch_is_left_out():
    coupler = coupler_of([("coupled", 1), ("coupled", 2)], [5, 6])
    del coupler._runner.input_batch.req_id_to_index["0"]
    assert coupler.rows().rows.tolist() == [1]
    del coupler._runner.input_batch.req_id_to_index["1"]
    assert coupler.rows() is None


def test_without_a_seed_each_request_has_its_own():
    coupler = coupler_of([("coupled", None), ("coupled", None)], [5, 5], ["a", "b"])
    one, two = coupler.rows().seeds
    assert one != two
    assert coupler_of([("coupled", None)], [5], ["a"]).rows().seeds[0] == one


# -- one token a row


class Stock(torch.nn.Module):
    """Records what the stock sampler is given."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.inner = TopKTopPSampler()

    def forward(self, logits, generators, k, p):
        self.calls.append((logits.clone(), dict(generators), k, p))
        return self.inner(logits, generators, k, p)


@pytest.mark.parametrize("limits", [{}, {"k": torch.tensor([3, 50, 3, 5])}, {"p": torch.full((4,), 0.8)}])
def test_plain_rows_go_through_the_stock_sampler_untouched(limits):
    rows = [("plain", 1), ("coupled", 2), ("plain", None), ("coupled", 4)]
    k, p = limits.get("k"), limits.get("p")
    logits = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(0))
    generators = {n: torch.Generator().manual_seed(n) for n in range(4)}
    stock = Stock()
    sampler = CoupledTopKTopPSampler(stock, coupler_of(rows, [5, 6, 7, 8]))
    tokens, _ = sampler(logits.clone(), generators, k, p)
    ((seen, used, seen_k, seen_p),) = stock.calls
    assert torch.equal(seen, logits[[0, 2]])
    assert used == {0: generators[0], 1: generators[2]}
    assert seen_k is None if k is None else seen_k.tolist() == [3, 3]
    assert seen_p is None if p is None else seen_p.tolist() == pytest.approx([0.8, 0.8])
    alone = {n: torch.Generator().manual_seed(2 * n) for n in (0, 1)}
    expected, _ = TopKTopPSampler()(logits[[0, 2]], alone, seen_k, seen_p)
    assert tokens[[0, 2]].tolist() == expected.tolist()


def test_coupled_rows_alone_need_no_stock_sampler():
    stock = Stock()
    sampler = CoupledTopKTopPSampler(stock, coupler_of([("coupled", 1), ("coupled", 2)], [5, 6]))
    tokens, logprobs = sampler(torch.zeros(2, VOCAB), {}, None, None)
    assert (stock.calls, logprobs, tokens.shape, tokens.dtype) == ([], None, (2,), torch.int64)


@pytest.mark.parametrize("mode", ["processed_logits", "processed_logprobs"])
@pytest.mark.parametrize("kinds", [["coupled", "plain", "coupled"], ["coupled"] * 3])
def test_processed_logprobs_of_all_rows(mode, kinds):
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(4))
    k = torch.tensor([3, 4, 5])
    stock = TopKTopPSampler(mode)
    expected = stock(logits.clone(), {}, k, None)[1]
    coupler = coupler_of([(kind, 1) for kind in kinds], [5, 6, 7])
    got = CoupledTopKTopPSampler(stock, coupler)(logits.clone(), {}, k, None)[1]
    assert torch.equal(got, expected)


def test_without_coupled_rows_everything_is_stock():
    stock = Stock()
    sampler = CoupledTopKTopPSampler(stock, coupler_of([("plain", 1), ("greedy", 1)], [5, 6]))
    generators = {0: torch.Generator().manual_seed(0)}
    sampler(torch.zeros(2, VOCAB), generators, None, None)
    assert stock.calls[0][1] == generators


@pytest.mark.parametrize("limits", [{}, {"k": [4]}, {"p": [0.5]}, {"k": [4], "p": [0.5]}])
def test_a_coupled_row_does_not_depend_on_its_batch(limits):
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(1))
    k = torch.tensor(limits["k"] * 3) if "k" in limits else None
    p = torch.tensor(limits["p"] * 3) if "p" in limits else None

    def sample(order, positions):
        coupler = coupler_of([("coupled", seed) for seed in order], positions)
        sampler = CoupledTopKTopPSampler(TopKTopPSampler(), coupler)
        n = len(order)
        return sampler(
            logits[: len(order)][[0] * n].clone(),
            {},
            None if k is None else k[:n],
            None if p is None else p[:n],
        )[0].tolist()

    alone = [sample([9], [position])[0] for position in range(40)]
    for position in range(0, 40, 3):
        assert sample([1, 9, 2], [0, position, 7])[1] == alone[position]
    assert len(set(alone)) > 1
    if "k" in limits:
        assert set(alone) <= set(logits[0].topk(4).indices.tolist())


def test_coupled_rows_draw_nothing_from_their_generator():
    generator = torch.Generator().manual_seed(5)
    before = generator.get_state()
    sampler = CoupledTopKTopPSampler(TopKTopPSampler(), coupler_of([("coupled", 1)], [3]))
    sampler(torch.zeros(1, VOCAB), {0: generator}, None, None)
    assert torch.equal(generator.get_state(), before)


# -- verification


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
