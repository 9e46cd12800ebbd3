"""The command lines of `lynx-ascend eval` and `lynx-ascend calibrate`. Imported when one of them runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from lynx_ascend.errors import ConfigError

MODELS = ["smollm2", "gemma3-270m"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="What a codec does to a model's answers, on real KV; no engine, no network.\n\n"
    "  lynx-ascend eval error --model smollm2 --plot error.png\n\n"
    "  lynx-ascend eval acceptance --model smollm2 --codec lynx --prompts 16",
)
calibrate_app = typer.Typer(add_completion=False)

_CODEC = typer.Option(
    None, "--codec", help="A codec, more with more --codec. Default: all that fit the question."
)
_CALIBRATION = typer.Option(
    None, help="Calibration file for `lynx`; default: the one that ships for the model, if there is one."
)
_JSON = typer.Option(False, "--json", help="Print JSON instead of a table.")
_SEED = typer.Option(0, help="Seed of what is drawn.")


@app.command()
def error(
    model: list[str] = typer.Option(
        MODELS, "--model", help="A known name, a folder or a hub id; several with more."
    ),
    codec: list[str] | None = _CODEC,
    contexts: int = typer.Option(8, min=1, help="Pieces of held-out text per model."),
    context: int = typer.Option(2048, min=64, help="Tokens of each."),
    following: int = typer.Option(64, min=1, help="Tokens after each whose distributions are compared."),
    sinks: int | None = typer.Option(
        None, min=0, max=31, help="Exact first tokens. Default: each codec's own."
    ),
    recent: int | None = typer.Option(
        None, min=0, max=256, help="Exact last tokens. Default: each codec's own."
    ),
    calibration: str | None = _CALIBRATION,
    plot: Path | None = typer.Option(None, help="Draw bits against KL into this file (png, svg or pdf)."),
    as_json: bool = _JSON,
) -> None:
    """Errors of K, V and attention, and the KL divergence of the next tokens, per codec.

    A plane's error is relative (norms), over all tokens, exact ones included. Bits count all metadata and exact rows of
    a bfloat16 cache. `anchor` is what decode drafts on, until the residual is there.

      lynx-ascend eval error --model smollm2 --codec lynx --codec kivi4
    """
    from lynx_ascend.eval import error as measurement
    from lynx_ascend.eval import report
    from lynx_ascend.eval.model import EvalModel
    from lynx_ascend.eval.samples import samples, split_texts
    from lynx_ascend.eval.subjects import subject_names, subjects

    spec = _spec(sinks, recent)
    results: dict[str, dict[str, dict[str, float]]] = {}
    for name in model:
        chosen = subjects(codec or subject_names(), name, calibration=calibration, spec=spec)
        loaded = EvalModel(name)
        found = samples(loaded, split_texts("held-out"), count=contexts, context=context, following=following)
        with report.progress(f"{name}: error", len(found) * len(chosen)) as step:
            errors = measurement.measure(loaded, found, chosen, step=step)
        results[name] = {subject: figures.figures() for subject, figures in errors.items()}
    if plot is not None:
        from lynx_ascend.eval.plot import draw

        draw(results, plot)
    if as_json:
        setting = {
            "contexts": contexts,
            "context": context,
            "following": following,
            "sinks": sinks,
            "recent": recent,
        }
        print(json.dumps({**report.stamp(), **setting, "models": results}, indent=2))
        return
    for name, figures in results.items():
        report.print_errors(name, figures, contexts, context)


@app.command()
def acceptance(
    model: list[str] = typer.Option(MODELS[:1], "--model", help="A known name, a folder or a hub id."),
    codec: list[str] | None = _CODEC,
    prompts: int = typer.Option(
        64, min=1, help="Chat prompts over held-out essays, 900 to 1,900 tokens of text each."
    ),
    max_draft: int = typer.Option(64, min=1, max=127, help="Longest draft."),
    temperature: float = typer.Option(
        0.0, min=0, help="0: greedy; above: sampled, draft and verification coupled."
    ),
    calibration: str | None = _CALIBRATION,
    seed: int = _SEED,
    as_json: bool = _JSON,
) -> None:
    """How many drafts on the anchor the full KV confirms (the paper's figure 10).

    lynx-ascend eval acceptance --codec lynx --codec lynx-default --prompts 16
    """
    from lynx_ascend.codec import get_codec
    from lynx_ascend.eval import acceptance as measurement
    from lynx_ascend.eval import report
    from lynx_ascend.eval.model import EvalModel
    from lynx_ascend.eval.samples import questions, split_texts
    from lynx_ascend.eval.subjects import UNCALIBRATED, subject_names, subjects

    names = codec or [n for n in subject_names() if n == UNCALIBRATED or get_codec(n).drafts]
    choose = measurement.sampled(temperature, seed) if temperature else measurement.greedy
    results: dict[str, dict[str, dict[str, float]]] = {}
    for name in model:
        chosen = subjects(names, name, calibration=calibration)
        loaded = EvalModel(name)
        asked = questions(loaded, split_texts("held-out"), count=prompts, lengths=(900, 1200, 1500, 1900))
        with report.progress(f"{name}: acceptance", len(asked) * len(chosen)) as step:
            found = measurement.measure(loaded, asked, chosen, max_draft=max_draft, choose=choose, step=step)
        results[name] = {subject: figures.figures() for subject, figures in found.items()}
    if as_json:
        setting = {"max_draft": max_draft, "temperature": temperature, "seed": seed}
        print(json.dumps({**report.stamp(), **setting, "models": results}, indent=2))
        return
    for name, figures in results.items():
        report.print_acceptance(name, figures, max_draft, temperature)


@calibrate_app.command()
def calibrate(
    model: str = typer.Argument(help="A known name, a folder or a hub id."),
    output: Path | None = typer.Option(
        None, "-o", "--output", help="File to write. Default: MODEL.calibration.yaml."
    ),
    bits: float = typer.Option(
        4.7, min=1.5, max=9, help="Bits a value of the anchor at --context, everything included."
    ),
    text: Path | None = typer.Option(
        None, help="Your own UTF-8 text; its first half calibrates. Default: essays."
    ),
    contexts: int = typer.Option(6, min=1, help="Pieces of text to calibrate on; as many are held out."),
    context: int = typer.Option(2048, min=64, help="Tokens of each."),
    following: int = typer.Option(128, min=1, help="Tokens after each whose distributions count."),
    seed: int = _SEED,
    as_json: bool = _JSON,
) -> None:
    """Choose chunk, alpha and the width of every channel for a model, and say what it gains on held-out text.

    Both engines are then given the file: `calibration:` under `transfer:` (docs/configuration.md).

      lynx-ascend calibrate smollm2 -o smollm2.yaml
    """
    from lynx_ascend.eval import report
    from lynx_ascend.eval.calibrate import CANDIDATES
    from lynx_ascend.eval.calibrate import calibrate as run
    from lynx_ascend.eval.model import EvalModel
    from lynx_ascend.eval.samples import samples, split_own_text, split_texts

    target = output or Path(f"{Path(model).name}.calibration.yaml")
    if not target.parent.is_dir():
        raise ConfigError(f"there is no folder {target.parent} to write {target.name} to")
    splits: Any = (
        (split_texts("calibration"), split_texts("held-out")) if text is None else split_own_text(text)
    )
    loaded = EvalModel(model)
    size: dict[str, int] = {"count": contexts, "context": context, "following": following}
    used, held_out = (samples(loaded, texts, **size) for texts in splits)
    with report.progress(
        f"{model}: {len(CANDIDATES)} candidates a plane", len(used) + 2 * len(held_out)
    ) as step:
        found = run(loaded, used, held_out, bits=bits, seed=seed, step=step)
    found.calibration.save(target)
    if as_json:
        gains = {"default": found.default, "calibrated": found.calibrated}
        print(
            json.dumps(
                {**report.stamp(), "file": str(target), "long_bits": found.long_bits, **gains}, indent=2
            )
        )
        return
    report.print_calibration(model, found, target, len(held_out), context)


def _spec(sinks: int | None, recent: int | None) -> Any:
    """A CodecSpec where a user asks for one; None leaves every codec its own."""
    from lynx_ascend.codec import CodecSpec

    if sinks is None and recent is None:
        return None
    default = CodecSpec()
    return CodecSpec(
        sinks=default.sinks if sinks is None else sinks, recent=default.recent if recent is None else recent
    )
