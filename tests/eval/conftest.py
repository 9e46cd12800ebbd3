"""A model small enough for fast tests: two layers with random weights, a tokenizer of words."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lynx_ascend.eval.model import EvalModel
from lynx_ascend.eval.samples import Sample

WORDS = 64


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("models") / "tiny"
    torch.manual_seed(0)
    config = LlamaConfig(
        **{"vocab_size": WORDS, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024},
        **{"initializer_range": 0.2, "bos_token_id": 0, "eos_token_id": None},
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(WORDS)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0").save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> EvalModel:
    return EvalModel(str(tiny_path))


@pytest.fixture(scope="session")
def drawn() -> list[Sample]:
    """Four samples of random words."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, WORDS, (4, 300 + 24), generator=generator)
    return [Sample("drawn", row[:300], row[300:]) for row in ids]
