"""How many drafts on the anchor the full KV confirms (the paper's figure 10).

Drafting stops at the first token that differs, and up to there its input is the reference's: one parallel pass on
the anchor over the reference text finds the same accepted length as drafting token by token would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lynx_ascend.errors import ConfigError
from lynx_ascend.eval.coded import code
from lynx_ascend.eval.model import Choose, EvalModel
from lynx_ascend.eval.subjects import Subject


@dataclass
class Acceptance:
    """One codec over all prompts.

    Attributes:
        accepted: drafts accepted, per prompt.
        possible: drafts that there could be: ``max_draft``, or fewer where the answer ends.
        agreed: the share of the reference's positions at which the anchor's choice is the same, per prompt.
        bits_anchor: bits a value of the anchor, per prompt.
    """

    accepted: list[int] = field(default_factory=list)
    possible: list[int] = field(default_factory=list)
    agreed: list[float] = field(default_factory=list)
    bits_anchor: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """The keys of ``--json``. The standard error takes prompts for independent."""
        accepted = torch.tensor(self.accepted, dtype=torch.float64)
        whole = accepted >= torch.tensor(self.possible)
        spread = float(accepted.std() / len(self.accepted) ** 0.5) if len(self.accepted) > 1 else 0.0
        return {
            "prompts": len(self.accepted),
            "bits_anchor": sum(self.bits_anchor) / len(self.bits_anchor),
            "mean_accepted": float(accepted.mean()),
            "mean_accepted_standard_error": spread,
            "mean_possible": sum(self.possible) / len(self.possible),
            "p_at_least_10": _share(accepted >= 10),
            "p_at_least_20": _share(accepted >= 20),
            "p_whole": _share(whole),
            "top1_agreement": sum(self.agreed) / len(self.agreed),
        }


def greedy(logits: Tensor, first: int) -> Tensor:
    """The most likely token of each position."""
    return logits.argmax(-1)


def sampled(temperature: float, seed: int) -> Choose:
    """Sampling by Gumbel noise that is a function of (seed, position): draft and verification share it (coupling)."""
    if temperature <= 0:
        raise ConfigError(f"a temperature of {temperature} does not sample; use a number above 0, or greedy")

    def choose(logits: Tensor, first: int) -> Tensor:
        noise = torch.empty_like(logits, dtype=torch.float64)
        for row in range(logits.shape[0]):
            generator = torch.Generator().manual_seed(seed * 1_000_003 + first + row)
            noise[row].exponential_(generator=generator)
        return (logits.double() / temperature - noise.log()).argmax(-1)

    return choose


def measure(
    model: EvalModel,
    prompts: Sequence[Tensor],
    subjects: Sequence[Subject],
    *,
    max_draft: int = 64,
    choose: Choose = greedy,
    step: Callable[[], None] = lambda: None,
) -> dict[str, Acceptance]:
    """Acceptance per subject that drafts, against the text of its own full KV. ``step``: after each (prompt, subject).

    Raises ConfigError where a subject does not draft.
    """
    for subject in subjects:
        if not subject.codec.drafts:
            raise ConfigError(f"{subject.name} has no anchor to draft on")
    results = {subject.name: Acceptance() for subject in subjects}
    for prompt in prompts:
        kv, logits = model.prefill(prompt)
        first = int(choose(logits.unsqueeze(0), 0)[0])

        def later(rows: Tensor, position: int) -> Tensor:
            return choose(rows, position + 1)

        for subject in subjects:
            coded = code(kv, subject.codec, subject.specs)
            assert coded.anchor is not None
            reference = model.generate(coded.full, first, max_draft, later)
            reference = _up_to_end(reference, model.end_tokens)
            with torch.no_grad():
                drafts = later(model.resume(coded.anchor, reference[:-1]), 0)
            same = drafts == reference[1:]
            result = results[subject.name]
            result.accepted.append(int(same.int().cumprod(0).sum()))
            result.possible.append(same.numel())
            result.agreed.append(float(same.float().mean()))
            result.bits_anchor.append(coded.bits_anchor)
            step()
    return results


def _up_to_end(tokens: Tensor, ends: set[int]) -> Tensor:
    """``tokens`` up to the first that ends the answer, at least two."""
    for index in range(1, tokens.numel()):
        if int(tokens[index]) in ends:
            return tokens[: index + 1]
    return tokens


def _share(which: Tensor) -> float:
    return float(which.double().mean())
