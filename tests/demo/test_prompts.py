from __future__ import annotations

import pytest

from lynx_ascend.demo.errors import DemoError
from lynx_ascend.demo.prompts import Question, build_prompt
from lynx_ascend.demo.questions import QUESTIONS

ESSAYS = [("a", "One two three. " * 40), ("b", "Four five six seven. " * 40)]


class Words:
    """A token a word, and three for the chat template. `seam` more for a text that ends with a full stop."""

    chat = True

    def __init__(self, seam=0):
        self.words, self.seam = [], seam

    def encode(self, text):
        begin = len(self.words)
        self.words += text.split()
        return list(range(begin, len(self.words)))

    def decode(self, ids):
        return " ".join(self.words[i] for i in ids)

    def answer(self, ids):
        return self.decode(ids)

    def prompt_length(self, text):
        return len(text.split()) + 3 + (self.seam if ".\n" in text else 0)


@pytest.mark.parametrize("tokens", [30, 50, 100, 200])
def test_the_prompt_fits_and_ends_with_a_sentence(tokens):
    tok = Words()
    prompt = build_prompt(Question("a", "What comes after two?"), ESSAYS, tokens, tok)
    assert tokens - 4 <= prompt.tokens <= tokens
    assert prompt.tokens == tok.prompt_length(prompt.text)
    assert prompt.text.endswith(".\n\nWhat comes after two?")
    assert prompt.text.startswith("Read this essay.\n\nOne two three.")


def test_a_short_essay_is_followed_by_the_next():
    prompt = build_prompt(Question("b", "Why?"), ESSAYS, 250, Words())
    assert prompt.text.startswith("Read this essay.\n\nFour")
    assert "One two three." in prompt.text


def test_tokens_that_join_differently_do_not_make_it_too_long():
    assert build_prompt(Question("a", "Why?"), ESSAYS, 60, Words(seam=9)).tokens <= 60


def test_no_room_and_no_essay():
    with pytest.raises(DemoError, match="too few"):
        build_prompt(Question("a", "What is this about, and why?"), ESSAYS, 9, Words())
    with pytest.raises(DemoError, match="known: a, b"):
        build_prompt(Question("c", "Why?"), ESSAYS, 100, Words())


def test_the_questions_differ():
    assert len({question.text for question in QUESTIONS}) == len(QUESTIONS)
