"""A causal language model whose KV cache is taken out, changed and put back. Needs transformers; always float32."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lynx_ascend.errors import ModelError
from lynx_ascend.models import resolve_model

# (logits [positions, vocabulary], number of the first position) -> token ids [positions]
Choose = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True)
class Kv:
    """The cache of one sequence: per layer K and V, float32 ``[tokens, heads, dim]``, K after its position encoding."""

    keys: list[Tensor]
    values: list[Tensor]

    @property
    def tokens(self) -> int:
        """Length of the sequence."""
        return self.keys[0].shape[0]

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.keys)

    def planes(self) -> Iterator[tuple[int, str, Tensor]]:
        """(layer, ``k`` or ``v``, plane) of every plane."""
        for layer, (key, value) in enumerate(zip(self.keys, self.values, strict=True)):
            yield layer, "k", key
            yield layer, "v", value

    @classmethod
    def of(cls, planes: Sequence[tuple[int, str, Tensor]]) -> Kv:
        """Undo ``planes``."""
        by_name = {"k": {}, "v": {}}  # type: dict[str, dict[int, Tensor]]
        for layer, name, plane in planes:
            by_name[name][layer] = plane
        return cls(*([by_name[name][layer] for layer in sorted(by_name[name])] for name in ("k", "v")))


@dataclass(frozen=True)
class AttentionCall:
    """One layer's attention: its arguments and its output ``[1, queries, query heads, dim]``.

    ``query`` is ``[1, query heads, queries, dim]``; ``key`` and ``value`` are ``[1, heads, context + queries, dim]``.
    """

    module: Any
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    arguments: dict[str, Any]
    output: Tensor

    def again(self, key: Tensor, value: Tensor) -> Tensor:
        """The output, had the context had this K and V, ``[context, heads, dim]``."""
        planes = []
        for found, own in ((key, self.key), (value, self.value)):
            planes.append(torch.cat((found.transpose(0, 1).unsqueeze(0), own[:, :, found.shape[0] :]), 2))
        output: Tensor = _sdpa()(self.module, self.query, *planes, self.mask, **self.arguments)[0]
        return output


class EvalModel:
    """A model and its tokenizer.

    Args:
        name: a known name, a folder or a hub id.

    Raises:
        ModelError: it cannot be loaded, or its cache is not one K and one V per layer.
    """

    def __init__(self, name: str) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # the commands have their own
        self.name = name
        path = resolve_model(name)
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(path)
            self._model: Any = AutoModelForCausalLM.from_pretrained(
                path, dtype=torch.float32, attn_implementation="sdpa"
            )
        except (OSError, ValueError) as error:
            raise ModelError(f"{name} cannot be loaded: {error}") from error
        self._model.eval().requires_grad_(False)

    @property
    def end_tokens(self) -> set[int]:
        """Ids that end an answer."""
        found = self._model.generation_config.eos_token_id
        return set(found) if isinstance(found, list) else set() if found is None else {int(found)}

    @property
    def max_tokens(self) -> int:
        """Longest sequence that the model was made for."""
        return int(self._model.config.get_text_config().max_position_embeddings)

    def ids(self, text: str) -> Tensor:
        """Token ids of a text, int64 ``[tokens]``."""
        return torch.tensor(self.tokenizer(text, truncation=False, verbose=False)["input_ids"])

    @torch.no_grad()
    def prefill(self, ids: Tensor) -> tuple[Kv, Tensor]:
        """The cache of a prompt, and the logits ``[vocabulary]`` after it."""
        cache = _cache(None)
        output = self._forward(ids, cache, logits_to_keep=1)
        layers = [(layer.keys[0], layer.values[0]) for layer in cache.layers]
        if any(key.ndim != 3 or key.shape[1] != ids.numel() for key, _ in layers):
            raise ModelError(f"{self.name} does not keep every token's K and V: it cannot be evaluated")
        keys, values = (
            [plane.transpose(0, 1).contiguous() for plane in planes] for planes in zip(*layers, strict=True)
        )
        return Kv(keys, values), output.logits[0, -1]

    def resume(self, kv: Kv, ids: Tensor) -> Tensor:
        """Logits ``[tokens, vocabulary]`` of the given next tokens; gradients flow to ``kv``, which is not changed."""
        logits: Tensor = self._forward(ids, _cache(kv)).logits[0]
        return logits

    @torch.no_grad()
    def generate(self, kv: Kv, first: int, steps: int, choose: Choose) -> Tensor:
        """``first`` and the ``steps`` tokens chosen after it, int64 ``[steps + 1]``."""
        cache, tokens = _cache(kv), [first]
        for step in range(steps):
            logits = self._forward(torch.tensor(tokens[-1:]), cache).logits[0]
            tokens.append(int(choose(logits, step)[0]))
        return torch.tensor(tokens)

    def _forward(self, ids: Tensor, cache: Any, **arguments: Any) -> Any:
        with warnings.catch_warnings():
            # The argument's new name, `cache`, came with transformers 5.24; the old one is known until 5.40.
            warnings.filterwarnings("ignore", message=".*past_key_values", category=FutureWarning)
            return self._model(input_ids=ids.unsqueeze(0), past_key_values=cache, **arguments)

    @contextmanager
    def record_attention(self) -> Iterator[list[AttentionCall]]:
        """Within the context, every layer's attention appends what it was called with."""
        from transformers import AttentionInterface

        calls: list[AttentionCall] = []

        def record(
            module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **arguments: Any
        ) -> Any:
            output, weights = _sdpa()(module, query, key, value, mask, **arguments)
            calls.append(AttentionCall(module, query, key, value, mask, arguments, output))
            return output, weights

        AttentionInterface.register(_RECORDING, record)
        _share_mask()
        self._model.set_attn_implementation(_RECORDING)
        try:
            yield calls
        finally:
            self._model.set_attn_implementation("sdpa")


_RECORDING = "lynx_recording"


def _sdpa() -> Any:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    return sdpa_attention_forward


def _share_mask() -> None:
    """The recording attention takes the masks of the one that it wraps."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

    AttentionMaskInterface.register(_RECORDING, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


def _cache(kv: Kv | None) -> Any:
    """A cache that keeps every token of every layer: sliding windows are in the mask, as in vLLM's pages."""
    from transformers import DynamicCache

    cache = DynamicCache()
    if kv is not None:
        for layer, (key, value) in enumerate(zip(kv.keys, kv.values, strict=True)):
            cache.update(key.transpose(0, 1).unsqueeze(0), value.transpose(0, 1).unsqueeze(0), layer)
    return cache
