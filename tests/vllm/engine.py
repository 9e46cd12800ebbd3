"""A decode engine's scheduler without a model, and what its tests share."""

from __future__ import annotations

import contextlib
from typing import Any

PROMPT = list(range(100, 200))


class Engine:
    """A decode engine's scheduler with a model runner that returns the tokens a test names."""

    BLOCK = 32

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.free_at_start = self.free
        self.texts: dict[str, list[int]] = {}
        self.finish: dict[str, Any] = {}
        self.params: dict[str, Any] = {}
        self.last: Any = None

    @property
    def free(self) -> int:
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    @property
    def decode(self) -> Any:
        return self.scheduler._decode

    def state(self, req_id: str) -> Any:
        return self.scheduler._states.get(req_id)

    def step(
        self,
        tokens: dict[str, list[int]] | None = None,
        *,
        finished: Any = (),
        ready: Any = (),
        failed: Any = (),
    ) -> Any:
        """Schedule, run, update. `tokens`: what the runner samples for a request, else a token of its own (900...).

        `finished`, `ready`, `failed`: requests that the workers name with this step. Returns the SchedulerOutput.
        """
        from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput

        from lynx_ascend.vllm.metadata import LynxWorkerMetadata

        scheduler = self.scheduler
        output = self.last = scheduler.schedule()
        req_ids = list(output.num_scheduled_tokens)
        sampled: list[list[int]] = []
        for n, req_id in enumerate(req_ids):
            request = scheduler.requests[req_id]
            drafts = len(output.scheduled_spec_decode_tokens.get(req_id, []))
            whole = request.num_computed_tokens - drafts >= request.num_tokens
            sampled.append((tokens or {}).get(req_id, [900 + n]) if whole else [])
        report = None
        if ready or failed:
            report = LynxWorkerMetadata(dict.fromkeys(ready, 1), dict.fromkeys(failed, "a test says so"))
        result = scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=req_ids,
                req_id_to_index={req_id: n for n, req_id in enumerate(req_ids)},
                sampled_token_ids=sampled,
                kv_connector_output=KVConnectorOutput(
                    finished_recving=set(finished) or None, kv_connector_worker_meta=report
                ),
            ),
        )
        self.outputs = [one for outputs in result.values() for one in outputs.outputs]
        for outputs in result.values():
            for one in outputs.outputs:
                self.texts.setdefault(one.request_id, []).extend(one.new_token_ids)
                if one.finish_reason is not None:
                    assert one.request_id not in self.finish, "finished twice"
                    self.finish[one.request_id] = one.finish_reason.name
                    self.params[one.request_id] = one.kv_transfer_params
        return output

    def load(self, request: Any) -> Any:
        """Add a request, let its anchor come, and return the output of its first scheduled step."""
        self.scheduler.add_request(request)
        output = self.step(finished=[request.request_id])
        assert [r.req_id for r in output.kv_connector_metadata.receives] == [request.request_id]
        return output

    def abort(self, req_id: str) -> None:
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(req_id, RequestStatus.FINISHED_ABORTED)

    def check_empty(self) -> None:
        """Nothing of any request is left: blocks, loads, drafts, times, claims."""
        scheduler = self.scheduler
        assert self.free == self.free_at_start
        assert scheduler.requests == {}
        assert (list(scheduler.waiting), list(scheduler.skipped_waiting), scheduler.running) == ([], [], [])
        assert (scheduler._states, scheduler._times, scheduler._inflight_prefills) == ({}, {}, set())
        decode = self.decode
        assert (decode._loads, decode._claimed, decode.ready, decode.failed) == ({}, {}, set(), set())


def finish(engine, req_id, limit=200):
    """Step until the request has finished."""
    for _ in range(limit):
        if req_id in engine.finish:
            return
        engine.step()
    raise AssertionError(f"{req_id} does not finish")


@contextlib.contextmanager
def no_free_blocks(engine):
    """Waiting requests are promoted but not scheduled."""
    manager = engine.scheduler.kv_cache_manager
    allocate, manager.allocate_slots = manager.allocate_slots, lambda *args, **kwargs: None
    yield
    manager.allocate_slots = allocate


def plain_from_start(engine, req_id, prompt_tokens):
    """The step that recomputes the prompt: all of it is scheduled."""
    assert engine.last.num_scheduled_tokens[req_id] == prompt_tokens
