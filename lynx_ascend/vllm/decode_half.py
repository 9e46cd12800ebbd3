"""D's scheduler half: handles of admitted requests, and what the workers reported about their loads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.request import Request

from lynx_ascend.codec import Codec, get_codec
from lynx_ascend.errors import TransferError
from lynx_ascend.vllm.metadata import LynxConnectorMetadata, LynxWorkerMetadata, Receive
from lynx_ascend.vllm.params import RemotePrefill, parse_remote_prefill, request_digest
from lynx_ascend.vllm.settings import LynxSettings

logger = init_logger("vllm.lynx")


@dataclass(slots=True)
class Load:
    """One request's load on D.

    `opened`: a worker was asked to receive, or P was told that nobody will. `live`: the workers may still write to its
    blocks or hold its staging. `first_token`: P's token, if it was taken as the first output. `own_salt`: the client's
    cache salt. `local_tokens`: prompt tokens that came from D's own prefix cache; those blocks are shared and never
    written.
    """

    handle: RemotePrefill
    codec: Codec
    drafts: bool = False
    first_token: int | None = None
    own_salt: str | None = None
    opened: bool = False
    live: bool = False
    local_tokens: int = 0
    ready_ranks: int = 0
    failure: str | None = None
    facts: dict[str, float] = field(default_factory=dict)


class DecodeHalf:
    """Loads of requests that another engine prefilled."""

    def __init__(self, settings: LynxSettings, world_size: int, vocab_size: int) -> None:
        self._settings = settings
        self._world_size = world_size
        self._vocab_size = vocab_size
        self._loads: dict[str, Load] = {}
        self._claimed: dict[str, str] = {}
        self._meta = LynxConnectorMetadata()
        self.ready: set[str] = set()
        self.failed: set[str] = set()

    # -- admission ---------------------------------------------------------------------------------------------------

    def admit(self, request: Request) -> Load | None:
        """Take a request's handle.

        A request without one, or with one that cannot be right (malformed, another prompt's, used by another request),
        is served as a plain request: it computes its prompt itself.
        """
        try:
            handle = parse_remote_prefill(
                request.kv_transfer_params, codec=self._settings.codec, max_draft=self._settings.max_draft
            )
            if handle is None:
                return None
            if request.abort_immediately:
                # D's front end refused the request and hands in a placeholder without its prompt
                # (async_llm.py:723), so that P's copy need not wait for its lease.
                self._check_peer(handle)
                self._meta.discards.append(handle)
                return None
            self._check_peer(handle)
            self._check_prompt(handle, request)
        except TransferError as error:
            logger.warning("lynx: request %s computes its prompt itself: %s", request.request_id, error)
            return None
        self._claimed[handle.transfer_id] = request.request_id
        load = Load(handle, get_codec(handle.codec))
        self._loads[request.request_id] = load
        return load

    def _check_peer(self, handle: RemotePrefill) -> None:
        hosts = self._settings.allowed_hosts
        if hosts is not None and handle.host not in hosts:
            raise TransferError(f"host {handle.host} is not in allowed_hosts", handle.transfer_id)
        if handle.transfer_id in self._claimed:
            raise TransferError("another request of this engine uses it", handle.transfer_id)

    def _check_prompt(self, handle: RemotePrefill, request: Request) -> None:
        if request.prompt_token_ids is None or request.pooling_params is not None:
            raise TransferError(
                "only token prompts of generating requests are transferred", handle.transfer_id
            )
        if handle.prompt_tokens != request.num_prompt_tokens:
            raise TransferError(
                f"it holds {handle.prompt_tokens} tokens, the prompt has {request.num_prompt_tokens}",
                handle.transfer_id,
            )
        if handle.prompt_digest != request_digest(request):
            raise TransferError("it belongs to another prompt", handle.transfer_id)
        if handle.first_token is not None and handle.first_token >= self._vocab_size:
            raise TransferError(f"its first token {handle.first_token} is no token", handle.transfer_id)

    def load_of(self, req_id: str) -> Load | None:
        """The load of a request, while it has one."""
        return self._loads.get(req_id)

    # -- the scheduler's questions -----------------------------------------------------------------------------------

    def matched_tokens(self, request: Request, local_tokens: int) -> tuple[int, bool]:
        """Prompt tokens to load beyond the local prefix hit; free of side effects."""
        load = self._loads.get(request.request_id)
        if load is None or load.opened:
            return 0, False
        missing = request.num_prompt_tokens - local_tokens
        return (missing, True) if missing > 0 else (0, False)

    def blocks_allocated(self, request: Request, blocks: KVCacheBlocks, external_tokens: int) -> None:
        """Order the load once its blocks exist; when the local prefix covers the prompt, let P drop its copy."""
        load = self._loads.get(request.request_id)
        if load is None or load.opened:
            return
        load.opened = True
        if external_tokens == 0:
            self._meta.discards.append(load.handle)
            return
        load.live = True
        load.local_tokens = request.num_prompt_tokens - external_tokens
        (block_ids,) = blocks.get_block_ids()
        self._meta.receives.append(
            Receive(
                request.request_id,
                load.handle,
                load.drafts,
                load.local_tokens,
                request.num_prompt_tokens,
                list(block_ids),
            )
        )

    # -- the life of a load ------------------------------------------------------------------------------------------

    def commit(self, req_id: str) -> None:
        """Order the workers to confirm, before this step's forward, that the full-precision pages are in place."""
        self._meta.commits.append(req_id)
        self._settle(req_id)

    def cancel(self, req_id: str) -> None:
        """Stop a load: no block of it is written any more from the next step on, staging is freed on both engines."""
        load = self._loads.get(req_id)
        if load is None:
            return
        if load.live:
            self._meta.cancels.append(req_id)
        elif not load.opened:
            load.opened = True
            self._meta.discards.append(load.handle)
        self._settle(req_id)

    def _settle(self, req_id: str) -> None:
        self._loads[req_id].live = False
        self.ready.discard(req_id)
        self.failed.discard(req_id)

    def finished(self, req_id: str) -> Load | None:
        """The request is over: cancel what is still live and forget it."""
        self.cancel(req_id)
        load = self._loads.pop(req_id, None)
        if load is not None:
            self._claimed.pop(load.handle.transfer_id, None)
        return load

    def take_meta(self) -> LynxConnectorMetadata:
        """The orders collected since the last step."""
        meta, self._meta = self._meta, LynxConnectorMetadata()
        return meta

    def on_worker_report(self, report: LynxWorkerMetadata) -> None:
        """Note what the workers of all ranks reported with the last step."""
        for req_id, facts in report.facts.items():
            if (load := self._loads.get(req_id)) is not None:
                load.facts.update(facts)
        for req_id, reason in report.failed.items():
            load = self._loads.get(req_id)
            if load is not None and load.live:
                load.failure = reason
                self.failed.add(req_id)
        for req_id, ranks in report.ready.items():
            load = self._loads.get(req_id)
            if load is None or not load.live:
                continue
            load.ready_ranks += ranks
            if load.ready_ranks >= self._world_size and load.failure is None:
                self.ready.add(req_id)

    def first_tokens(self, new_requests: list[Any]) -> dict[str, int]:
        """First output tokens that the workers must learn: those of requests scheduled for the first time."""
        known: dict[str, int] = {}
        for new in new_requests:
            load = self._loads.get(new.req_id)
            if load is not None and load.first_token is not None:
                known[new.req_id] = load.first_token
        return known
