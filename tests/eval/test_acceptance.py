"""Acceptance: one parallel pass finds what drafting token by token would."""

from __future__ import annotations

import pytest
import torch

from lynx_ascend.errors import ConfigError
from lynx_ascend.eval import acceptance
from lynx_ascend.eval.coded import code
from lynx_ascend.eval.subjects import subjects


@pytest.mark.parametrize("choose", [acceptance.greedy, acceptance.sampled(1.0, 3)], ids=["greedy", "sampled"])
def test_equals_drafting_token_by_token(tiny, drawn, choose):
    prompts = [sample.context for sample in drawn]
    chosen = subjects(["lynx", "lynx-paper"], "tiny")
    found = acceptance.measure(tiny, prompts, chosen, max_draft=20, choose=choose)
    for subject in chosen:
        for prompt, accepted in zip(prompts, found[subject.name].accepted, strict=True):
            kv, logits = tiny.prefill(prompt)
            coded = code(kv, subject.codec, subject.specs)
            first = int(choose(logits.unsqueeze(0), 0)[0])
            full, drafts = (
                tiny.generate(planes, first, 20, lambda rows, step: choose(rows, step + 1))
                for planes in (coded.full, coded.anchor)
            )
            same = (full == drafts)[1:]
            assert accepted == (20 if same.all() else int(same.int().argmin()))
    assert found["lynx"].figures()["mean_accepted"] >= found["lynx-paper"].figures()["mean_accepted"]


def test_drafts_end_with_the_answer(tiny, drawn, monkeypatch):
    ((name, before),) = acceptance.measure(
        tiny, [drawn[0].context], subjects(["lynx"], "tiny"), max_draft=20
    ).items()
    assert before.possible == [20]
    kv, logits = tiny.prefill(drawn[0].context)
    text = tiny.generate(code(kv, *_lynx()).full, int(logits.argmax()), 20, acceptance.greedy)
    end = int(text[4])
    monkeypatch.setattr(type(tiny), "end_tokens", property(lambda self: {end}))
    found = acceptance.measure(tiny, [drawn[0].context], subjects(["lynx"], "tiny"), max_draft=20)[name]
    assert found.possible == [int((text[1:] == end).int().argmax()) + 1]


def test_sampling_follows_the_distribution_and_repeats():
    choose = acceptance.sampled(1.0, 0)
    logits = torch.tensor([0.6, 0.3, 0.1]).log().expand(3000, 3)
    tokens = choose(logits, 0)
    shares = torch.bincount(tokens, minlength=3) / 3000
    assert torch.allclose(shares, torch.tensor([0.6, 0.3, 0.1]), atol=0.03)
    assert torch.equal(choose(logits[:10], 5), tokens[5:15])
    with pytest.raises(ConfigError, match="temperature"):
        acceptance.sampled(0, 0)


def test_a_codec_without_an_anchor_is_refused(tiny, drawn):
    with pytest.raises(ConfigError, match="int8"):
        acceptance.measure(tiny, [drawn[0].context], subjects(["int8"], "tiny"))


def _lynx():
    (subject,) = subjects(["lynx"], "tiny")
    return subject.codec, subject.specs
