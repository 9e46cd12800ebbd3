"""Sample text: contexts and what follows them, from essays; half of them to calibrate on, half held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from lynx_ascend.errors import ConfigError
from lynx_ascend.eval.model import EvalModel
from lynx_ascend.texts import essays

Split = Literal["calibration", "held-out"]
_QUESTIONS = (
    "Summarize the text above in a few sentences.",
    "What is the main argument of this text?",
    "Explain the most surprising idea of the text to a child.",
    "List the three most important points of the text.",
)


@dataclass(frozen=True)
class Sample:
    """``context``, int64 ``[tokens]``, and the tokens ``next`` that follow it in the text."""

    text: str
    context: Tensor
    next: Tensor


def split_texts(split: Split) -> list[tuple[str, str]]:
    """(name, text) of every second essay: the two splits share none."""
    return essays()[0 if split == "calibration" else 1 :: 2]


def split_own_text(path: Path) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """A user's own UTF-8 text: its first half to calibrate on, the second held out. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as UTF-8 text: {error}") from error
    middle = len(text) // 2
    return [(path.name, text[:middle])], [(path.name, text[middle:])]


def samples(
    model: EvalModel, texts: Sequence[tuple[str, str]], *, count: int, context: int, following: int
) -> list[Sample]:
    """Up to ``count`` pieces of running text, one of each text before the second of any.

    Raises ConfigError where no text is long enough.
    """
    ids = [(name, model.ids(text)) for name, text in texts]
    size, found = context + following, list[Sample]()
    for start in range(0, max(tokens.numel() for _, tokens in ids), size):
        for name, tokens in ids:
            piece = tokens[start : start + size]
            if piece.numel() == size and len(found) < count:
                found.append(Sample(name, piece[:context], piece[context:]))
    if not found:
        raise ConfigError(f"no text has {size} tokens: ask for a shorter context, or give a longer text")
    return found


def questions(
    model: EvalModel, texts: Sequence[tuple[str, str]], *, count: int, lengths: Sequence[int]
) -> list[Tensor]:
    """``count`` chat prompts, int64 ``[tokens]``: the start of a text, of so many tokens, and a question about it.

    Lengths and questions take turns; texts that are too short for their turn's length are taken whole.
    """
    found: list[Tensor] = []
    ids = [model.ids(text) for _, text in texts]
    while len(found) < count:
        turn = len(found)
        body = model.tokenizer.decode(ids[turn % len(ids)][: lengths[turn % len(lengths)]])
        question = _QUESTIONS[turn // len(lengths) % len(_QUESTIONS)]
        found.append(_chat(model, f"{body}\n\n{question}"))
    return found


def _chat(model: EvalModel, content: str) -> Tensor:
    """A user's message in the model's template, or as it is where it has none."""
    if not model.tokenizer.chat_template:
        return model.ids(content)
    messages = [{"role": "user", "content": content}]
    text = model.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return torch.tensor(model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
