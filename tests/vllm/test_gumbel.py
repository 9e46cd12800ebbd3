"""The noise of coupled sampling: its distribution, and that it depends on seed, position and token alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lynx_ascend.vllm.sampling.gumbel import gumbel_noise, row_keys, seed_key

VOCAB = 1000


def noise(seeds, positions, vocab=VOCAB):
    keys = row_keys(np.array([seed_key(seed) for seed in seeds], dtype=np.uint64), np.array(positions))
    return gumbel_noise(torch.from_numpy(keys), vocab)


def test_moments_are_gumbels():
    sample = noise([7] * 500, range(500)).double().flatten()
    assert sample.isfinite().all()
    assert sample.mean() == pytest.approx(0.5772157, abs=0.01)
    assert sample.var() == pytest.approx(np.pi**2 / 6, rel=0.02)
    skew = ((sample - sample.mean()) ** 3).mean() / sample.std() ** 3
    assert skew == pytest.approx(1.1395, abs=0.05)


def test_quantiles_are_gumbels():
    sample = noise([8] * 500, range(500)).double().flatten()
    for q in (0.001, 0.01, 0.25, 0.5, 0.75, 0.99, 0.999):
        below = (sample <= -np.log(-np.log(q))).double().mean().item()
        assert below == pytest.approx(q, abs=5 * np.sqrt(q * (1 - q) / len(sample)))


@pytest.mark.parametrize("vary", ["position", "seed"])
def test_frequencies_are_the_softmax(vary):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(20, generator=generator) * 1.5
    draws = 40_000
    rows = (
        noise([11] * draws, range(draws), 20) if vary == "position" else noise(range(draws), [5] * draws, 20)
    )
    counts = torch.bincount((logits + rows).argmax(dim=1), minlength=20).double()
    expected = logits.double().softmax(0) * draws
    chi2 = ((counts - expected) ** 2 / expected).sum().item()
    assert chi2 < 43.8, "19 degrees of freedom, p = 0.001"


def test_neighbours_are_not_correlated():
    rows = noise([1] * 400, range(400))
    assert abs(np.corrcoef(rows[:-1].flatten(), rows[1:].flatten())[0, 1]) < 0.01
    assert abs(np.corrcoef(rows[:, :-1].flatten(), rows[:, 1:].flatten())[0, 1]) < 0.01


def test_a_row_is_the_same_alone_and_in_a_batch():
    batch = noise([3, "request", 3, 2**70, -1], [0, 5, 1, 9, 100_000])
    for row, (seed, position) in enumerate([(3, 0), ("request", 5), (3, 1), (2**70, 9), (-1, 100_000)]):
        assert torch.equal(noise([seed], [position])[0], batch[row])
    assert torch.equal(noise([3], [0], 10)[0], batch[0, :10])


def test_other_seeds_and_positions_give_other_rows():
    rows = noise([0, 0, 1, 2, "0", "1", -1], [0, 1, 0, 0, 0, 0, 0])
    for left in range(len(rows)):
        for right in range(left):
            assert (rows[left] == rows[right]).double().mean() < 0.01


def test_seed_and_position_do_not_trade_places():
    """Seeds that differ by a constant must not give each other's sequence shifted."""
    first, second = noise([5] * 50, range(50)), noise([6] * 50, range(50))
    for shift in range(-10, 11):
        rolled = torch.roll(second, shift, 0)
        assert not (rolled == first).all(dim=1).any()


def test_seed_keys_tell_numbers_from_names():
    keys = {seed_key(1), seed_key("1"), seed_key(-1), seed_key(2**64 + 1), seed_key(2**64)}
    assert len(keys) == 5
    assert all(0 <= key < 2**64 for key in keys)
