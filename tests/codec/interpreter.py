"""The Triton kernels as functions that Triton's interpreter runs on CPU tensors."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PACKAGE = "lynx_ascend.codec.kernels"
KERNELS = ("encode_tiles", "decode_tiles", "encode_exact", "decode_exact")
_MODULES = ("values", "codes", "rows", "bitplanes", "encode", "decode", "exact")


@contextmanager
def interpreted() -> Iterator[None]:
    """Within, `codec.cuda` starts interpreted kernels."""
    with _loaded("1") as modules:
        for module in modules:
            for name, value in list(vars(module).items()):
                # The interpreter prepares the language anew at every call of a helper; once a kernel is enough.
                if name not in KERNELS and type(value).__name__ == "InterpretedFunction":
                    setattr(module, name, value.rewrite())
        yield


@contextmanager
def compilable() -> Iterator[dict[str, Any]]:
    """Within, the kernels by name as functions that `triton.compile` takes."""
    with _loaded("0") as modules:
        yield {name: vars(module)[name] for module in modules for name in KERNELS if name in vars(module)}


@contextmanager
def _loaded(interpret: str) -> Iterator[list[Any]]:
    """Fresh modules: whether a function is interpreted is decided when its module is loaded."""
    names = [f"{PACKAGE}.{module}" for module in _MODULES]
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    # Triton's own library is loaded first, for the compiler: the interpreter takes it as well.
    importlib.import_module("triton.language")
    setting = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = interpret
    try:
        modules = [importlib.import_module(name) for name in names]
    finally:
        os.environ.pop("TRITON_INTERPRET")
        if setting is not None:
            os.environ["TRITON_INTERPRET"] = setting
    try:
        yield modules
    finally:
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(before)
