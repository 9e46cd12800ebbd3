"""A model's KV: taken out and put back it changes nothing; recorded attention is the model's own."""

from __future__ import annotations

import pytest
import torch

from lynx_ascend.errors import ModelError
from lynx_ascend.eval.model import EvalModel, Kv
from lynx_ascend.eval.sensitivity import fisher


def test_resuming_on_its_own_kv_is_the_whole_forward(tiny, drawn):
    sample = drawn[0]
    kv, after = tiny.prefill(sample.context)
    assert (kv.layers, kv.tokens, kv.keys[0].shape) == (2, 300, (300, 2, 16))
    with torch.no_grad():
        whole = tiny._model(input_ids=torch.cat((sample.context, sample.next)).unsqueeze(0)).logits[0]
        resumed = tiny.resume(kv, sample.next)
    torch.testing.assert_close(after, whole[299], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(resumed, whole[300:], atol=1e-4, rtol=1e-4)
    assert kv.tokens == 300


def test_planes_round_trip(tiny, drawn):
    kv, _ = tiny.prefill(drawn[0].context)
    back = Kv.of(list(kv.planes()))
    assert all(torch.equal(a, b) for a, b in zip(kv.keys + kv.values, back.keys + back.values, strict=True))


def test_generation_is_greedy_decoding(tiny, drawn):
    kv, _ = tiny.prefill(drawn[0].context)
    tokens = tiny.generate(kv, 5, 12, lambda logits, _: logits.argmax(-1))
    with torch.no_grad():
        logits = tiny.resume(kv, tokens[:-1])
    assert tokens[0] == 5
    assert torch.equal(logits.argmax(-1), tokens[1:])


def test_recorded_attention_with_the_same_kv_is_the_same(tiny, drawn):
    kv, _ = tiny.prefill(drawn[0].context)
    with torch.no_grad():
        expected = tiny.resume(kv, drawn[0].next)
        with tiny.record_attention() as calls:
            recorded = tiny.resume(kv, drawn[0].next)
        assert torch.equal(recorded, expected)
        assert len(calls) == 2
        for layer, call in enumerate(calls):
            assert torch.equal(call.again(kv.keys[layer], kv.values[layer]), call.output)
            assert not torch.equal(call.again(kv.keys[layer], 2 * kv.values[layer]), call.output)
        assert torch.equal(tiny.resume(kv, drawn[0].next), expected)
    assert len(calls) == 2, "recording has ended"


def test_the_fisher_information_predicts_the_divergence(tiny, drawn):
    """A small random error in V: KL is half the sum of F e^2 over many draws of the error's signs."""
    from lynx_ascend.eval.error import divergence

    kv, _ = tiny.prefill(drawn[0].context)
    generator = torch.Generator().manual_seed(0)
    weights = fisher(tiny, kv, drawn[0].next, draws=40, generator=generator)
    with torch.no_grad():
        exact, found, predicted = tiny.resume(kv, drawn[0].next), 0.0, 0.0
        for _ in range(20):
            errors = [1e-2 * torch.randn(v.shape, generator=generator) for v in kv.values]
            moved = Kv(kv.keys, [v + e for v, e in zip(kv.values, errors, strict=True)])
            found += float(divergence(exact, tiny.resume(moved, drawn[0].next)).sum())
            predicted += float(
                sum((f * e * e).sum() / 2 for f, e in zip(weights.values, errors, strict=True))
            )
    assert 0.7 < predicted / found < 1.4


def test_a_model_that_is_not_there_is_a_clear_error(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="empty"):
        EvalModel(str(tmp_path / "empty"))
