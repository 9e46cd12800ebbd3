"""One token a row: coupled rows by their noise, plain rows by the stock sampler."""

from __future__ import annotations

import pytest
import torch
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

from lynx_ascend.vllm.sampling.topk_topp import CoupledTopKTopPSampler

from .sampling_lab import (
    VOCAB,
    coupler_of,
    eager,  # noqa: F401  (a fixture)
)

pytestmark = pytest.mark.usefixtures("eager")


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
