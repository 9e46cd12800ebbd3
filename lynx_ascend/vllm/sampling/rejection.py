"""Verification of drafts: accept while the target's own token equals the draft (exact-match rejection sampling).

Only Lynx requests carry drafts here, and each of them is greedy or coupled, so the target token of a position is
determined: no draft probabilities, no residual distribution. Replaces the acceptance rule of
vllm/v1/sample/rejection_sampler.py and keeps its logits processing and logprobs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p
from vllm.v1.sample.rejection_sampler import MAX_SPEC_LEN, PLACEHOLDER_TOKEN_ID, RejectionSampler

from lynx_ascend.errors import LynxError
from lynx_ascend.vllm.sampling.coupling import SAMPLING_EPS, Coupler
from lynx_ascend.vllm.sampling.topk_topp import CoupledTopKTopPSampler


def accept_matching_prefix(targets: torch.Tensor, drafts: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Longest matching prefix of every row, then the first divergence (or the bonus token).

    Args:
        targets: int64 [rows, width + 1], the target's token after 0..n accepted drafts; entries past n are ignored.
        drafts: int64 [rows, width], padded.
        counts: int64 [rows], n: how many drafts a row has.

    Returns:
        int32 [rows, width + 1]: accepted tokens and the one after them, PLACEHOLDER_TOKEN_ID behind.
    """
    width = drafts.shape[1]
    column = torch.arange(width + 1, device=targets.device)
    matches = (targets[:, :width] == drafts) & (column[:width] < counts[:, None])
    accepted = matches.to(torch.int64).cumprod(dim=1).sum(dim=1)
    keep = column <= accepted[:, None]
    return torch.where(keep, targets, PLACEHOLDER_TOKEN_ID).to(torch.int32)


class CoupledRejectionSampler(RejectionSampler):
    """`RejectionSampler` for drafts whose target tokens are determined (greedy or coupled)."""

    def __init__(self, sampler: Any, coupler: Coupler, device: torch.device) -> None:
        super().__init__(sampler, None, device)
        self.coupler = coupler

    def forward(
        self, metadata: Any, draft_probs: Any, logits: torch.Tensor, sampling_metadata: Any
    ) -> SamplerOutput:
        """One verification pass; shapes as `RejectionSampler.forward` (vllm/v1/sample/rejection_sampler.py:90)."""
        if metadata.max_spec_len > MAX_SPEC_LEN:
            raise LynxError(
                f"{metadata.max_spec_len} drafts in one pass; vLLM allows {MAX_SPEC_LEN}: lower max_draft"
            )
        num_drafts: list[int] = metadata.num_draft_tokens
        bonus = self._sample_bonus(metadata, num_drafts, logits, sampling_metadata)
        raw = logits[metadata.target_logits_indices].to(torch.float32)
        processed = self.is_processed_logprobs_mode
        target_logits = self.apply_logits_processors(
            raw if processed else raw.clone(), sampling_metadata, metadata
        )
        target_tokens, target_logits = self._target_tokens(num_drafts, target_logits, sampling_metadata)
        tokens = self._accept(metadata, num_drafts, target_tokens, bonus.sampled_token_ids)
        logprobs = None
        if sampling_metadata.max_num_logprobs is not None:
            logprobs = self._get_logprobs_tensors(
                sampling_metadata.max_num_logprobs,
                metadata,
                logits,
                target_logits if processed else raw,
                bonus.logprobs_tensors.logprobs,
                tokens,
            )
        return SamplerOutput(sampled_token_ids=tokens, logprobs_tensors=logprobs)

    def _sample_bonus(
        self, metadata: Any, num_drafts: list[int], logits: torch.Tensor, sampling_metadata: Any
    ) -> Any:
        """The token after all drafts of every row; for rows without drafts it is their ordinary next token."""
        stage = self.sampler.topk_topp_sampler
        if not isinstance(stage, CoupledTopKTopPSampler):
            raise LynxError("the coupled sampler is not installed; load the engine with a Lynx worker class")
        stage.num_draft_tokens = num_drafts
        try:
            return self.sampler(
                logits=logits[metadata.bonus_logits_indices],
                sampling_metadata=replace(sampling_metadata, max_num_logprobs=-1),
                predict_bonus_token=True,
                logprobs_mode_override="processed_logits"
                if self.is_processed_logprobs_mode
                else "raw_logits",
            )
        finally:
            stage.num_draft_tokens = None

    def _target_tokens(
        self, num_drafts: list[int], logits: torch.Tensor, sampling_metadata: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """int64 [drafts] token that the target gives at each draft's position, and the constrained logits."""
        greedy = logits.argmax(dim=-1)
        if sampling_metadata.all_greedy:
            return greedy, logits
        counts = np.asarray(num_drafts, dtype=np.int64)
        request_of = torch.from_numpy(np.repeat(np.arange(len(counts)), counts)).to(logits.device)
        temperature = sampling_metadata.temperature[request_of]
        divisor = torch.where(temperature < SAMPLING_EPS, torch.ones_like(temperature), temperature)
        constrained = apply_top_k_top_p(
            logits.div_(divisor.unsqueeze(1)),
            None if sampling_metadata.top_k is None else sampling_metadata.top_k[request_of],
            None if sampling_metadata.top_p is None else sampling_metadata.top_p[request_of],
        )
        coupled = self.coupler.rows()
        if coupled is None:
            return greedy, constrained
        starts = np.concatenate([[0], np.cumsum(counts)])
        of_row = counts[coupled.rows]
        total = int(of_row.sum())
        if total == 0:
            return greedy, constrained
        within = np.arange(total) - np.repeat(np.cumsum(of_row) - of_row, of_row)
        flat = np.repeat(starts[coupled.rows], of_row) + within
        positions = np.repeat(coupled.positions, of_row) + within
        index = torch.from_numpy(flat).to(logits.device)
        noise = coupled.noise(positions, np.repeat(coupled.seeds, of_row), logits.shape[-1], logits.device)
        greedy[index] = (constrained[index] + noise).argmax(dim=-1)
        return greedy, constrained

    @staticmethod
    def _accept(
        metadata: Any, num_drafts: list[int], targets: torch.Tensor, bonus: torch.Tensor
    ) -> torch.Tensor:
        """Lay the flat targets and drafts out as rows and take the matching prefix of each."""
        device = targets.device
        width = max(num_drafts)
        counts_host = np.asarray(num_drafts, dtype=np.int64)
        rows_host = np.repeat(np.arange(len(counts_host)), counts_host)
        columns_host = np.arange(len(rows_host)) - np.repeat(
            np.cumsum(counts_host) - counts_host, counts_host
        )
        rows, columns = torch.from_numpy(rows_host).to(device), torch.from_numpy(columns_host).to(device)
        counts = torch.from_numpy(counts_host).to(device)
        target_rows = torch.zeros(len(num_drafts), width + 1, dtype=torch.int64, device=device)
        draft_rows = torch.zeros(len(num_drafts), width, dtype=torch.int64, device=device)
        target_rows[rows, columns] = targets
        draft_rows[rows, columns] = metadata.draft_token_ids.to(torch.int64)
        target_rows.scatter_(1, counts[:, None], bonus.to(torch.int64))
        return accept_matching_prefix(target_rows, draft_rows, counts)
