"""Which rows of the persistent batch are sampled coupled, with which seeds and positions.

Touches the model runner's input batch (vllm/v1/worker/gpu_input_batch.py); holds no tensors between steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lynx_ascend.vllm.params import is_lynx_request
from lynx_ascend.vllm.sampling.gumbel import gumbel_noise, row_keys, seed_key

# vLLM's threshold below which a temperature means greedy (vllm/v1/sample/sampler.py).
SAMPLING_EPS = 1e-5


class CoupledRows:
    """Rows of one batch that sample with coupled noise: indices, seed keys and next positions."""

    __slots__ = ("positions", "rows", "seeds")

    def __init__(self, rows: np.ndarray, seeds: np.ndarray, positions: np.ndarray) -> None:
        self.rows = rows
        self.seeds = seeds
        self.positions = positions

    def noise(
        self, positions: np.ndarray, seeds: np.ndarray, vocab: int, device: torch.device
    ) -> torch.Tensor:
        """float32 [len(positions), vocab] Gumbel noise on `device`."""
        return gumbel_noise(torch.from_numpy(row_keys(seeds, positions)).to(device), vocab)


class Coupler:
    """Keeps the seeds of live Lynx requests that sample at a temperature; empty for everyone else."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._seeds: dict[str, int] = {}

    def track(self, req_id: str, sampling_params: Any) -> None:
        """Remember a new request when it is a Lynx request with a temperature.

        Without a user's seed the request id seeds it: random per request, the same for draft and verification.
        """
        if sampling_params is None or sampling_params.temperature < SAMPLING_EPS:
            return
        if not is_lynx_request(sampling_params.extra_args):
            return
        seed = sampling_params.seed
        self._seeds[req_id] = seed_key(seed if seed is not None else req_id)

    def tracks(self, req_id: str) -> bool:
        """Whether a request samples coupled."""
        return req_id in self._seeds

    def forget(self, req_ids: Any) -> None:
        """Drop finished requests."""
        if self._seeds:
            for req_id in req_ids:
                self._seeds.pop(req_id, None)

    def rows(self) -> CoupledRows | None:
        """The coupled rows of the current batch, or None. `positions` are those of the next token of each row."""
        if not self._seeds:
            return None
        batch = self._runner.input_batch
        found = [
            (index, seed)
            for req_id, seed in self._seeds.items()
            if (index := batch.req_id_to_index.get(req_id)) is not None
        ]
        if not found:
            return None
        rows = np.array([index for index, _ in found], dtype=np.int64)
        seeds = np.array([seed for _, seed in found], dtype=np.uint64)
        return CoupledRows(rows, seeds, batch.num_tokens_no_spec[rows].astype(np.int64))
