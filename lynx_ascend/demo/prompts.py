"""Prompts of a wanted length: an essay, cut to size, and a question about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lynx_ascend.demo.errors import DemoError


@dataclass(frozen=True, slots=True)
class Question:
    """`essay` is a name that `lynx_ascend.texts.essays` gives."""

    essay: str
    text: str


class Tokenizer(Protocol):
    """What is needed of a tokenizer; `load_tokenizer` gives a real one."""

    chat: bool  # whether the model has a chat template

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def prompt_length(self, text: str) -> int:
        """Tokens of the whole prompt, chat template included, when a user says `text`."""
        ...

    def answer(self, ids: Sequence[int]) -> str:
        """What a reader sees of generated tokens: nothing behind the end of the text."""
        ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the user says, and how many tokens the engine will see."""

    question: str
    text: str
    tokens: int


def build_prompt(
    question: Question, essays: Sequence[tuple[str, str]], tokens: int, tok: Tokenizer
) -> Prompt:
    """The longest prompt of at most `tokens` tokens whose text ends with a sentence.

    An essay that is too short is followed by the ones after it. `DemoError` if `tokens` leaves no room for text.
    """
    names = [name for name, _ in essays]
    if question.essay not in names:
        raise DemoError(f"there is no essay {question.essay!r} (known: {', '.join(names)})")
    begin = names.index(question.essay)
    room = tokens - tok.prompt_length(_text("", question))
    ids: list[int] = []
    for _, text in (*essays[begin:], *essays[:begin]):
        if len(ids) >= room:
            break
        ids += tok.encode(text.strip() + "\n\n")
    while room > 0:
        said = _text(_to_sentence(tok.decode(ids[:room])), question)
        length = tok.prompt_length(said)
        if length <= tokens:
            return Prompt(question.text, said, length)
        room -= length - tokens  # tokens that join differently at the seams
    raise DemoError(
        f"{tokens} tokens are too few for a text and a question; ask for --prompt-tokens 300 or more"
    )


def _text(essay: str, question: Question) -> str:
    return f"Read this essay.\n\n{essay}\n\n{question.text}"


def _to_sentence(text: str) -> str:
    end = max(text.rfind(mark) for mark in (". ", ".\n", "? ", "?\n"))
    return text[: end + 1] if end > 0 else text


class _HubTokenizer:
    def __init__(self, model: str) -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(model)
        self.chat = bool(self._tokenizer.chat_template)

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False, verbose=False))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    def prompt_length(self, text: str) -> int:
        if not self.chat:
            return len(self._tokenizer.encode(text))
        messages = [{"role": "user", "content": text}]
        rendered = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return len(self.encode(rendered))

    def answer(self, ids: Sequence[int]) -> str:
        end = self._tokenizer.eos_token_id
        said = list(ids[: ids.index(end)] if end in ids else ids)
        return str(self._tokenizer.decode(said, skip_special_tokens=True))


def load_tokenizer(model: str) -> Tokenizer:
    """The tokenizer of a model folder (or hub id)."""
    try:
        return _HubTokenizer(model)
    except ModuleNotFoundError as error:
        raise DemoError(f"{error.name} is missing: make setup, or pip install 'lynx-ascend[cpu]'") from error
    except (OSError, ValueError) as error:
        raise DemoError(f"the tokenizer of {model} cannot be loaded: {error}") from error
