"""Find a model's calibration on sample text, and what it gains on text that was not used for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lynx_ascend.codec import Calibration, CodecSpec, get_codec
from lynx_ascend.eval import error
from lynx_ascend.eval.allocate import allocate
from lynx_ascend.eval.costs import Candidate, measure_costs
from lynx_ascend.eval.model import EvalModel
from lynx_ascend.eval.samples import Sample
from lynx_ascend.eval.subjects import Subject, plain_specs

# What a plane may choose from, beside its widths (docs/research/anchor.md has what each was found to earn).
CANDIDATES = tuple(Candidate(chunk, alpha) for chunk in (32, 64, 128) for alpha in (0.1, 0.5, 1.5))
BITS = 4.7


@dataclass(frozen=True)
class Calibrated:
    """The calibration, its bits in long contexts, and the held-out errors of the defaults and of it.

    The errors' keys are those of ``error.Errors.figures``.
    """

    calibration: Calibration
    long_bits: float
    default: dict[str, float]
    calibrated: dict[str, float]


def calibrate(
    model: EvalModel,
    samples: list[Sample],
    held_out: list[Sample],
    *,
    bits: float = BITS,
    draws: int = 2,
    seed: int = 0,
    step: Callable[[], None] = lambda: None,
) -> Calibrated:
    """Choose by the samples, measure on the held-out ones.

    Args:
        bits: bits a value of the anchor at the samples' length, everything included.
        draws: of labels per sample, for the sensitivities.
        step: called after each sample, and twice after each held-out one.

    Raises ConfigError where ``bits`` are too few.
    """
    spec = CodecSpec()
    costs = measure_costs(model, samples, CANDIDATES, plain_specs, spec, draws=draws, seed=seed, step=step)
    specs = {key: plain_specs(*key) for key in costs.planes}
    found = allocate(costs, specs, bits, samples[0].context.numel())
    calibration = replace(found.calibration, model=model.name)
    codec = get_codec("lynx", spec)
    subjects = [
        Subject("default", codec, plain_specs),
        Subject(
            "calibrated", codec, lambda layer, name: calibration.apply(layer, name, plain_specs(layer, name))
        ),
    ]
    errors = {
        name: found.figures() for name, found in error.measure(model, held_out, subjects, step=step).items()
    }
    gains = {
        "long_bits": round(found.long_bits, 4),
        **{
            f"{name}_{key}": round(figures[key], 7)
            for name, figures in errors.items()
            for key in ("bits_anchor", "kl_anchor")
        },
    }
    return Calibrated(
        replace(calibration, gains=gains), found.long_bits, errors["default"], errors["calibrated"]
    )
