"""What the model runner needs for progressive decode: coupled sampling, a verifier, and P's first token.

Line numbers are of vllm 0.23.0, vllm/v1/worker/gpu_model_runner.py. The runner builds a RejectionSampler only with a
`speculative_config` (:618), which would cost decode graphs and forbid sampling features; so it is attached here.
"""

from __future__ import annotations

from typing import Any

from lynx_ascend.vllm.guards import check_logits_processors
from lynx_ascend.vllm.metadata import LynxConnectorMetadata
from lynx_ascend.vllm.sampling.coupling import Coupler
from lynx_ascend.vllm.sampling.rejection import CoupledRejectionSampler
from lynx_ascend.vllm.sampling.topk_topp import CoupledTopKTopPSampler


class LynxRunnerMixin:
    """Mixed in front of a model runner class by `install`."""

    lynx_coupler: Coupler

    def _update_states(self, scheduler_output: Any) -> Any:
        """Follow new and finished requests; give new ones the first token that P made (:1150)."""
        self.lynx_coupler.forget(scheduler_output.finished_req_ids)
        for new in scheduler_output.scheduled_new_reqs:
            self.lynx_coupler.track(new.req_id, new.sampling_params)
        result = super()._update_states(scheduler_output)  # type: ignore[misc]
        for new in scheduler_output.scheduled_new_reqs:
            if self.lynx_coupler.tracks(new.req_id):
                self._drop_generator(new.req_id)
        meta = scheduler_output.kv_connector_metadata
        if isinstance(meta, LynxConnectorMetadata) and meta.first_tokens:
            self._append_first_tokens(meta.first_tokens)
        return result

    def _drop_generator(self, req_id: str) -> None:
        """Coupled requests draw no generator state. vLLM would rewind it after a partial prefill chunk (:3589), which
        CPU generators cannot do."""
        runner: Any = self
        runner.requests[req_id].generator = None
        runner.input_batch.generators.pop(runner.input_batch.req_id_to_index[req_id], None)

    def _append_first_tokens(self, first_tokens: dict[str, int]) -> None:
        """What the runner does with a token that it sampled (_bookkeeping_sync), for one that P sampled."""
        runner: Any = self
        batch = runner.input_batch
        for req_id, token in first_tokens.items():
            state = runner.requests[req_id]
            if state.output_token_ids:
                continue
            row, position = batch.req_id_to_index[req_id], state.num_prompt_tokens
            # The batch shares this list (gpu_input_batch.py:344), penalties see it.
            state.output_token_ids.append(token)
            batch.token_ids_cpu[row, position] = token
            batch.is_token_ids[row, position] = True
            batch.num_tokens_no_spec[row] = position + 1


def install(runner: Any) -> None:
    """Turn a loaded model runner into one that drafts, verifies and samples coupled.

    Raises:
        ConfigError: a decode engine has logits processors that verification would not apply.
    """
    transfer = runner.vllm_config.kv_transfer_config
    if transfer is not None and transfer.is_kv_consumer:
        check_logits_processors(runner.input_batch.logitsprocs.all)
    cls = type(runner)
    runner.__class__ = type(f"Lynx{cls.__name__}", (LynxRunnerMixin, cls), {})
    runner.lynx_coupler = Coupler(runner)
    sampler = runner.sampler
    sampler.topk_topp_sampler = CoupledTopKTopPSampler(sampler.topk_topp_sampler, runner.lynx_coupler)
    if runner.speculative_config is None:
        runner.rejection_sampler = CoupledRejectionSampler(sampler, runner.lynx_coupler, runner.device)
