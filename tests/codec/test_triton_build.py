"""What the Triton kernels compile to, without a GPU, and the script that checks and measures them on one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lynx_ascend.codec import cuda

from .interpreter import compilable

triton = pytest.importorskip("triton")


def compiled(function, constants):
    """PTX for sm_90, with the options that `codec.cuda` starts kernels with."""
    kinds = {
        **{"pages": "*i16", "block_ids": "*i64", "anchor": "*i8", "residual": "*i8", "tables": "*fp32"},
        **{"bits_before": "*i32", "places": "*i32", "alpha": "fp32", "steepness": "fp32"},
    }
    constants = {"channel_stride": 1, **{k: v for k, v in constants.items() if k in function.arg_names}}
    signature = {
        name: "constexpr" if name in constants else kinds.get(name, "i32") for name in function.arg_names
    }
    aligned = [
        *("pages", "anchor", "residual", "block_stride", "token_stride", "head_stride", "head_bytes"),
        "fixed",
    ]
    places = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(function.arg_names) if name in aligned}
    source = triton.compiler.ASTSource(function, signature, constants, places)
    target = triton.backends.compiler.GPUTarget("cuda", 90, 32)
    return triton.compile(source, target=target, options=dict(cuda._OPTIONS)).asm["ptx"]


@pytest.mark.parametrize(
    ("token_scale", "widths"), [(False, False), (True, False), (False, True)], ids=["k", "v", "k, widths"]
)
def test_what_the_kernels_compile_to(token_scale, widths, tmp_path, monkeypatch):
    """For an H100 or H200, without one: every operation as the format has it, and whole words of codes."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    shape = {"DIM": 128, "BLOCK": 128, "PAGE": 256, "CHUNK": 64 if token_scale else 32, "KIND": 0, "ITEM": 2}
    how = {"TOKEN_SCALE": token_scale, "MEAN": token_scale, "STEPS": 3 if token_scale else 2, "DEGREE": 0}
    with compilable() as kernels:
        texts = {
            name: compiled(function, {**shape, **how, "WIDTHS": widths, "RESIDUAL": True, "FULL": not widths})
            for name, function in kernels.items()
        }
    for name, text in texts.items():
        # Only the library's logarithm, an estimate, may fuse and flush.
        assert not re.search(r"\bfma\.rn\.f32|div\.(full|approx)|(add|sub|mul|div)(\.rn)?\.ftz", text), name
    # A byte of a channel's width may stand anywhere.
    assert widths or re.search(r"st\.global\.v[24]\.b32", texts["encode_tiles"])
    assert "fma" not in texts["decode_tiles"]
    assert "div.rn.f32" in texts["encode_tiles"]


BENCH = Path(__file__).parents[2] / "ops/bench/triton_codec.py"


def test_the_script_for_a_gpu_runs_its_steps():
    command = [sys.executable, "-W", "ignore", str(BENCH), "--interpret", "--json"]
    done = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert set(done["wrong_bytes"].values()) == {0}
    assert {(row["plane"], row["step"]) for row in done["speeds"]} == {
        (plane, step) for plane in "kv" for step in ("copy", "encode", "decode_anchor", "decode_full")
    }


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_script_says_that_there_is_no_gpu():
    done = subprocess.run([sys.executable, str(BENCH)], capture_output=True, check=False, text=True)
    assert done.returncode == 2
    assert "no CUDA device" in done.stderr


def test_triton_is_not_imported_before_it_is_needed():
    code = "import sys, lynx_ascend.codec.ops; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ}, check=False).returncode == 0
