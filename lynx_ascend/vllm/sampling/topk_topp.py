"""The stock top-k/top-p sampler with coupled rows: the last stage of vllm/v1/sample/sampler.py."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

from lynx_ascend.vllm.sampling.coupling import Coupler


class CoupledTopKTopPSampler(nn.Module):
    """Wraps `TopKTopPSampler`: plain rows go through it untouched, coupled rows take argmax(logits + noise)."""

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
        mine = apply_top_k_top_p(
            logits[index], None if k is None else k[index], None if p is None else p[index]
        )
        positions = coupled.positions
        if self.num_draft_tokens is not None:
            positions = positions + torch.tensor(self.num_draft_tokens).numpy()[coupled.rows]
        noise = coupled.noise(positions, coupled.seeds, logits.shape[-1], logits.device)
        tokens_coupled = (mine + noise).argmax(dim=-1)
        skip: set[Any] = set(coupled.rows.tolist())
        plain = {row: generator for row, generator in generators.items() if row not in skip}
        tokens, logprobs = self.stock(logits, plain, k, p)
        tokens[index] = tokens_coupled.to(tokens.dtype)
        return tokens, logprobs
