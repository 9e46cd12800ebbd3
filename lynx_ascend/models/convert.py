"""GGUF to a folder that engines serve: bf16 safetensors, config, tokenizer with chat template.

Runs as a child (`python -m lynx_ascend.models.convert GGUF FOLDER`), so that whoever asked for the model
keeps neither torch nor the weights in memory. It prints the name of each step as it begins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from lynx_ascend.models.child import run_child

DEADLINE_S = 900.0  # it takes a minute on two cores
STEPS = ("weights", "tokenizer", "write")


def convert(gguf: Path, folder: Path, on_step: Callable[[str], None] = lambda _: None) -> None:
    """Converts in a child process; `ModelError` with the end of its output if that fails or takes 15 minutes."""
    log = folder.with_suffix(".log")

    def tell_step() -> None:
        seen = [line for line in log.read_text(errors="replace").splitlines() if line in STEPS]
        if seen:
            on_step(seen[-1])

    run_child(
        [sys.executable, "-m", "lynx_ascend.models.convert", str(gguf), str(folder)],
        f"convert {gguf.name}",
        log=log,
        deadline_s=DEADLINE_S,
        env={"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
        hint="it needs torch, transformers, gguf and accelerate: pip install 'lynx-ascend[cpu]'",
        on_tick=tell_step,
    )


def _convert(gguf: Path, folder: Path) -> None:
    print("weights", flush=True)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    # Without `dequantize` the weights stay in GGUF blocks and cannot be saved.
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    print("tokenizer", flush=True)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # GGUF readers leave it at 1e30, which lets clients overrun the context without a word.
    tokenizer.model_max_length = model.config.max_position_embeddings
    print("write", flush=True)
    if hasattr(model.config, "quantization_config"):  # an engine would look for GGUF kernels
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for file in folder.iterdir():  # the weights come out readable by their owner alone
        file.chmod(0o644)


if __name__ == "__main__":
    _convert(Path(sys.argv[1]), Path(sys.argv[2]))
