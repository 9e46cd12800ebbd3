"""LynxScheduler: drafts on the anchor, parks, verifies in one pass, commits. Stock requests take the stock path.

Line numbers are of vllm 0.23.0, vllm/v1/core/sched/scheduler.py. A drafting request is RUNNING for vLLM; what differs:
its tokens are hidden (:1695), parking leaves num_tokens == num_computed_tokens so that it is not scheduled (:441), and
verification rolls it back to its final tokens and submits the drafts as speculative tokens (:540).
"""

from __future__ import annotations

import time
from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.sched.utils import check_stop
from vllm.v1.engine import EngineCoreEventType, EngineCoreOutput, EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from lynx_ascend.errors import LynxError
from lynx_ascend.vllm.block_hashing import delay_hashing_of, rehash_with_salt
from lynx_ascend.vllm.connector import LynxConnector
from lynx_ascend.vllm.decode_half import DecodeHalf, Load
from lynx_ascend.vllm.drafting import DraftState, Phase, draft_limit, may_draft, may_take_first_token
from lynx_ascend.vllm.output_split import one_token_each
from lynx_ascend.vllm.token_times import TokenTimes

logger = init_logger("vllm.lynx")


class LynxScheduler(Scheduler):
    """`--scheduler-cls`. On a prefill engine, or without LynxConnector, it behaves as the stock scheduler."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Tokens that one block hash covers (:233).
        self._hash_block_size: int = kwargs.get("hash_block_size") or self.block_size
        connector = self.connector
        self._decode: DecodeHalf | None = connector.decode if isinstance(connector, LynxConnector) else None
        self._states: dict[str, DraftState] = {}
        self._times: dict[str, TokenTimes] = {}
        self._first_outputs: list[tuple[int, EngineCoreOutput]] = []
        self._to_split: set[str] = set()
        if self._decode is not None:
            delay_hashing_of(self.kv_cache_manager, self._states)

    # -- admission ---------------------------------------------------------------------------------------------------

    def add_request(self, request: Request) -> None:
        """Admit a request; one with a handle gets P's token as its first output, before any KV has come."""
        load = None
        if self._decode is not None and request.request_id not in self.requests:
            load = self._decode.admit(request)
        if load is None:
            super().add_request(request)
            return
        # KV that went through a codec is hashed apart from KV that was computed here: no request ever gets blocks that
        # are less precise than it asked for.
        load.own_salt = request.cache_salt
        rehash_with_salt(request, f"{load.own_salt or ''}|lynx:{load.codec.family}")
        super().add_request(request)
        if load.handle.token_times:
            self._times[request.request_id] = TokenTimes()
        if load.handle.first_token is not None and may_take_first_token(request):
            self._emit_first_token(request, load)
            if request.is_finished():
                return
        if load.codec.drafts and may_draft(request):
            base = request.num_tokens
            remaining = request.max_tokens - request.num_output_tokens
            limit = draft_limit(load.handle.max_draft, remaining, base, self.max_model_len)
            if limit > 0:
                load.drafts = True
                self._states[request.request_id] = DraftState(base, limit)

    def _emit_first_token(self, request: Request, load: Load) -> None:
        """Append P's token as the request's first output and queue it for the client."""
        token = load.handle.first_token
        assert token is not None
        load.first_token = token
        request.append_output_token_ids(token)
        if (times := self._times.get(request.request_id)) is not None:
            times.add(1)
        if request.prefill_stats is not None:
            request.prefill_stats.set(
                num_prompt_tokens=request.num_prompt_tokens,
                num_local_cached_tokens=0,
                num_external_cached_tokens=request.num_prompt_tokens,
            )
        if self.log_stats:
            request.record_event(EngineCoreEventType.SCHEDULED)
        params = None
        if check_stop(request, self.max_model_len):
            self.waiting.remove_requests([request])
            self.skipped_waiting.remove_requests([request])
            params = self._free_request(request)
        self._first_outputs.append(
            (
                request.client_index,
                EngineCoreOutput(
                    request_id=request.request_id,
                    new_token_ids=[token],
                    finish_reason=request.get_finished_reason(),
                    stop_reason=request.stop_reason,
                    events=request.take_events(),
                    prefill_stats=request.take_prefill_stats(),
                    kv_transfer_params=params,
                    trace_headers=request.trace_headers,
                ),
            )
        )

    # -- per step ----------------------------------------------------------------------------------------------------

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Turn finished and failed residuals into verification and recomputation, then schedule as usual."""
        if self._decode is not None and (self._decode.ready or self._decode.failed):
            for req_id in list(self._decode.failed):
                self._on_failed(req_id)
            for req_id in list(self._decode.ready):
                self._on_refined(req_id)
        output = super().schedule(*args, **kwargs)
        for req_id, state in list(self._states.items()):
            if state.phase is Phase.VERIFY and req_id in output.num_scheduled_tokens:
                state.phase = Phase.VERIFYING
            elif state.phase is Phase.DRAFT and self._needs_no_load(req_id):
                del self._states[req_id]
        return output

    def _needs_no_load(self, req_id: str) -> bool:
        """Whether the local prefix cache held a request's whole prompt: no residual will come, its tokens are final."""
        load = self._decode.load_of(req_id) if self._decode is not None else None
        return load is not None and load.opened and not load.live

    def _on_refined(self, req_id: str) -> None:
        """All pages of a request are at full precision: verify its drafts, or go on plainly if it has none."""
        assert self._decode is not None
        state, request = self._states.get(req_id), self.requests.get(req_id)
        if state is None or request is None:
            self._decode.commit(req_id)
            return
        if state.drafts:
            if request.status is not RequestStatus.RUNNING:
                raise LynxError(f"request {req_id} has drafts and is {request.status.name}")
            self._submit_drafts(request, state)
        elif request.status in (RequestStatus.WAITING_FOR_REMOTE_KVS, RequestStatus.WAITING):
            self._states.pop(req_id)
        elif request.status is RequestStatus.RUNNING:
            self._states.pop(req_id)
            self.kv_cache_manager.cache_blocks(request, request.num_computed_tokens)
        self._decode.commit(req_id)

    def _submit_drafts(self, request: Request, state: DraftState) -> None:
        """Roll back to the final tokens and hand in the drafts; the forward of this step is the verification."""
        self._rollback(request, state)
        request.num_computed_tokens = state.base - 1
        request.spec_token_ids = list(state.drafts)
        state.phase = Phase.VERIFY
        if (times := self._times.get(request.request_id)) is not None:
            times.drafted = len(state.drafts)
            times.verify_started = time.time()
        # First in the queue: the token budget of the step would otherwise cut the drafts of whoever comes last.
        self.running.remove(request)
        self.running.insert(0, request)

    def _rollback(self, request: Request, state: DraftState) -> None:
        """Forget drafts: token lists and the hashes of blocks that they filled."""
        outputs = state.base - request.num_prompt_tokens
        del request._all_token_ids[state.base :]
        del request._output_token_ids[outputs:]
        del request.block_hashes[state.base // self._hash_block_size :]

    def _on_failed(self, req_id: str) -> None:
        """A load failed while its request was running: compute the prompt here; nothing of it was shown or hashed."""
        assert self._decode is not None
        request, load = self.requests.get(req_id), self._decode.load_of(req_id)
        if request is None or load is None:
            return
        if request.status is RequestStatus.WAITING:
            self._restart(request)
        if request.status is not RequestStatus.RUNNING:
            return  # not promoted yet: _update_waiting_for_remote_kv sees the failure
        state = self._states.pop(req_id, None)
        if state is not None:
            self._rollback(request, state)
        request.spec_token_ids = []
        request.num_computed_tokens = load.local_tokens
        self._inflight_prefills.add(request)
        self._decode.cancel(req_id)
        if load.local_tokens == 0:
            rehash_with_salt(request, load.own_salt)
        logger.warning("lynx: request %s recomputes its prompt: %s", req_id, load.failure)

    def _update_waiting_for_remote_kv(self, request: Request) -> None:
        """The first phase of a load is over (:2166); a failed one leaves a plain request without blocks."""
        load = self._decode.load_of(request.request_id) if self._decode is not None else None
        if load is None or load.failure is None:
            super()._update_waiting_for_remote_kv(request)
            return
        self.finished_recving_kv_req_ids.remove(request.request_id)
        self.failed_recving_kv_req_ids.discard(request.request_id)
        self._restart(request)

    def _restart(self, request: Request) -> None:
        """A load failed before its request ran: give the blocks back and let it be scheduled as a plain request."""
        self.kv_cache_manager.free(request)
        request.num_computed_tokens = 0
        self._inflight_prefills.discard(request)
        self._become_plain(request)
        logger.warning("lynx: request %s computes its prompt itself", request.request_id)

    def _become_plain(self, request: Request) -> None:
        """No KV of this request came from elsewhere any more: drop drafts, cancel the load, hash as a plain request."""
        assert self._decode is not None
        state = self._states.pop(request.request_id, None)
        if state is not None:
            self._rollback(request, state)
        load = self._decode.load_of(request.request_id)
        self._decode.cancel(request.request_id)
        rehash_with_salt(request, load.own_salt if load is not None else request.cache_salt)

    # -- outputs -----------------------------------------------------------------------------------------------------

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """As the stock method, with queued first tokens in front of their clients' outputs, and verified tokens one by
        one where the front end looks for stop strings."""
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        if self._to_split:
            for of_client in outputs.values():
                of_client.outputs = [
                    part
                    for output in of_client.outputs
                    for part in (one_token_each(output) if output.request_id in self._to_split else [output])
                ]
            self._to_split.clear()
        if self._first_outputs:
            queued, self._first_outputs = self._first_outputs, []
            for client, output in reversed(queued):
                if output.finish_reason is None and output.request_id not in self.requests:
                    continue  # aborted before its first step
                outputs.setdefault(client, EngineCoreOutputs()).outputs.insert(0, output)
        return outputs

    def _update_request_with_output(
        self, request: Request, new_token_ids: list[int], *args: Any, **kwargs: Any
    ) -> tuple[list[int], bool]:
        """Hide drafts; on the verification's output return to the stock path (:1695)."""
        req_id = request.request_id
        state = self._states.get(req_id)
        if state is None:
            tokens, stopped = super()._update_request_with_output(request, new_token_ids, *args, **kwargs)
            if (times := self._times.get(req_id)) is not None:
                times.add(len(tokens))
            return tokens, stopped
        if state.phase is Phase.DRAFT:
            for token in new_token_ids:
                if state.add(token, self._stops(request, token)):
                    request.append_output_token_ids(token)
            return [], False
        if state.phase is not Phase.VERIFYING:
            raise LynxError(f"request {req_id} got output in phase {state.phase.name}")
        return self._on_verified(request, state, new_token_ids, *args, **kwargs)

    def _on_verified(
        self, request: Request, state: DraftState, new_token_ids: list[int], *args: Any, **kwargs: Any
    ) -> tuple[list[int], bool]:
        """Take the accepted drafts and the token after them; from here on the request is any other request."""
        accepted = len(new_token_ids) - 1
        del self._states[request.request_id]
        tokens, stopped = super()._update_request_with_output(request, new_token_ids, *args, **kwargs)
        if (times := self._times.get(request.request_id)) is not None:
            times.accepted = accepted
            times.add(len(tokens), state.draft_times[:accepted])
        if request.sampling_params is not None and request.sampling_params.stop:
            self._to_split.add(request.request_id)
        # Accepted drafts behind a stop are computed, but no tokens of the request.
        self.kv_cache_manager.cache_blocks(request, min(request.num_computed_tokens, request.num_tokens))
        logger.debug(
            "lynx: request %s: %d drafts, %d accepted", request.request_id, len(state.drafts), accepted
        )
        return tokens, stopped

    @staticmethod
    def _stops(request: Request, token: int) -> bool:
        params = request.sampling_params
        assert params is not None
        return token == params.eos_token_id or token in (params.stop_token_ids or ())

    def make_spec_decoding_stats(self, spec_decoding_stats: Any, *args: Any, **kwargs: Any) -> Any:
        """Skip our drafts: vLLM's arrays are sized by --speculative-config, which is not set (:2061)."""
        req_id = kwargs.get("request_id", args[-1] if args else None)
        if req_id in self._states:
            return spec_decoding_stats
        return super().make_spec_decoding_stats(spec_decoding_stats, *args, **kwargs)

    # -- preemption and the end --------------------------------------------------------------------------------------

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """A preempted request loses its blocks: drop drafts, stop the load before the blocks are reused (:974)."""
        load = self._decode.load_of(request.request_id) if self._decode is not None else None
        if load is not None and (load.live or request.request_id in self._states):
            self._become_plain(request)
        super()._preempt_request(request, *args, **kwargs)

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """Forget the request; answer with its token times when they were asked for (:1888)."""
        self._states.pop(request.request_id, None)
        times = self._times.pop(request.request_id, None)
        load = self._decode.load_of(request.request_id) if self._decode is not None else None
        params = super()._free_request(request, *args, **kwargs)
        if times is not None and load is not None:
            params = {
                **(params or {}),
                "token_times": times.to_params(
                    {**load.facts, "local_tokens": float(load.local_tokens)}, load.first_token is not None
                ),
            }
        return params
