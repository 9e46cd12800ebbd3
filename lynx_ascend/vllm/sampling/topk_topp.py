"""The stock top-k/top-p sampler with coupled rows: the last stage of vllm/v1/sample/sampler.py."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

from lynx_ascend.vllm.sampling.coupling import Coupler


class CoupledTopKTopPSampler(nn.Module):
    """Wraps `TopKTopPSampler`: plain rows go through it as if they were alone, coupled rows take
    argmax(logits + noise)."""

    def __init__(self, stock: nn.Module, coupler: Coupler) -> None:
        super().__init__()
        self.stock = stock
        self.coupler = coupler
        # Set by the rejection sampler while it samples bonus tokens: drafts stand between the last known token and it.
        self.num_draft_tokens: list[int] | None = None

    def forward(
        self,
        logits: torch.Tensor,
        generators: dict[int, torch.Generator],
        k: torch.Tensor | None,
        p: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Sample one token a row.

        Args:
            logits: float32 [rows, vocab], temperature already applied; may be changed in place.
            generators: row -> generator of seeded plain requests.
            k, p: per-row top-k and top-p, or None.

        Returns:
            (int64 [rows] tokens, processed logprobs or None), as the stock sampler.
        """
        coupled = self.coupler.rows()
        if coupled is None:
            return self.stock(logits, generators, k, p)
        index = torch.from_numpy(coupled.rows).to(logits.device)
        mine = apply_top_k_top_p(logits[index], _rows(k, index), _rows(p, index))
        positions = coupled.positions
        if self.num_draft_tokens is not None:
            positions = positions + np.asarray(self.num_draft_tokens, dtype=np.int64)[coupled.rows]
        noise = coupled.noise(positions, coupled.seeds, logits.shape[-1], logits.device)
        tokens = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)
        tokens[index] = (mine + noise).argmax(dim=-1)
        processed = self._processed(mine)
        logprobs = None
        if processed is not None:
            logprobs = torch.empty_like(logits)
            logprobs[index] = processed
        others = np.setdiff1d(np.arange(logits.shape[0]), coupled.rows)
        if len(others):
            rest = torch.from_numpy(others).to(logits.device)
            # The stock sampler of the CPU honours generators only when every row that it sees has one.
            seeded = {n: generators[row] for n, row in enumerate(others.tolist()) if row in generators}
            tokens_rest, logprobs_rest = self.stock(logits[rest], seeded, _rows(k, rest), _rows(p, rest))
            tokens[rest] = tokens_rest.to(tokens.dtype)
            if logprobs is not None:
                logprobs[rest] = logprobs_rest
        return tokens, logprobs

    def _processed(self, logits: torch.Tensor) -> torch.Tensor | None:
        """What the stock sampler returns beside its tokens, for rows that it does not see."""
        mode = getattr(self.stock, "logprobs_mode", "raw_logprobs")
        if mode == "processed_logits":
            return logits
        return logits.log_softmax(dim=-1, dtype=torch.float32) if mode == "processed_logprobs" else None


def _rows(values: torch.Tensor | None, index: torch.Tensor) -> torch.Tensor | None:
    return None if values is None else values[index]
