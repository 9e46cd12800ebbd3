"""The questions that the demo asks in turn, one a repetition."""

from __future__ import annotations

from lynx_ascend.demo.prompts import Question

# Chosen for answers of 65 tokens and more. With SmolLM2 the drafts of the first two survive, many of the third do not.
QUESTIONS = (
    Question("love", "What does the author say about finding work that you love? Answer in one paragraph."),
    Question("gh", "What makes a great hacker, according to the author?"),
    Question("startuplessons", "Which lessons about startups does the author teach? Explain each of them."),
)
