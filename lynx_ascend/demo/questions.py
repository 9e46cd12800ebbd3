"""The questions that the demo asks in turn, one a repetition."""

from __future__ import annotations

from lynx_ascend.demo.prompts import Question

# Chosen for answers of more than 65 tokens. Drafts survive less where the answer is less predictable.
QUESTIONS = (
    Question(
        "wisdom", "Explain the difference between wisdom and intelligence, as the author sees it, in detail."
    ),
    Question("love", "What does the author say about finding work that you love? Explain in detail."),
    Question("startuplessons", "Which lessons about startups does the author teach? Explain each of them."),
)
