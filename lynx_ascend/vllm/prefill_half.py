"""P's scheduler half: which prompts are offered, encoded, and what the response says about them."""

from __future__ import annotations

import uuid
import zlib
from typing import Any

from vllm.logger import init_logger
from vllm.v1.request import Request, RequestStatus

from lynx_ascend.errors import TransferError
from lynx_ascend.vllm.metadata import Encode, LynxConnectorMetadata, Offer
from lynx_ascend.vllm.params import RemoteDecode, RemotePrefill, parse_remote_decode, request_digest
from lynx_ascend.vllm.settings import LynxSettings

logger = init_logger("vllm.lynx")


def generation_of(engine_id: str) -> int:
    """This life of the engine as a u32: both halves derive it from the engine id, which vLLM draws at each start."""
    return zlib.crc32(engine_id.encode()) or 1


class _Prompt:
    """A request that another engine will decode."""

    __slots__ = ("offered", "params", "request", "transfer_id")

    def __init__(self, request: Request, params: RemoteDecode) -> None:
        self.request = request
        self.params = params
        self.transfer_id = uuid.uuid4().hex
        self.offered = False


class PrefillHalf:
    """Follows `do_remote_decode` requests from admission to the answer."""

    def __init__(self, settings: LynxSettings, engine_id: str) -> None:
        self._settings = settings
        self._generation = generation_of(engine_id)
        self._prompts: dict[str, _Prompt] = {}
        self._encodes: list[Encode] = []
        self._cancels: list[str] = []

    def on_new_request(self, request: Request) -> None:
        """Start following a request if it is ours; a malformed one is logged and served as a plain one."""
        try:
            params = parse_remote_decode(
                request.kv_transfer_params,
                codec=self._settings.codec,
                max_draft=self._settings.max_draft,
                allow_faults=self._settings.fault_injection,
            )
        except TransferError as error:
            logger.warning("lynx: request %s is prefilled without transfer: %s", request.request_id, error)
            return
        if params is None:
            return
        if request.pooling_params is not None or request.max_tokens != 1 or request.prompt_token_ids is None:
            logger.warning(
                "lynx: request %s needs max_tokens=1 and a token prompt to be transferred", request.request_id
            )
            return
        self._prompts[request.request_id] = _Prompt(request, params)

    def fill(self, meta: LynxConnectorMetadata, scheduled: dict[str, int]) -> None:
        """Add this step's orders. Prompts whose last tokens are scheduled are offered before their forward runs, so
        that no decode engine can ask for a transfer that P does not know yet."""
        for req_id, prompt in self._prompts.items():
            if prompt.offered or req_id not in scheduled:
                continue
            if prompt.request.num_computed_tokens + scheduled[req_id] >= prompt.request.num_prompt_tokens:
                prompt.offered = True
                meta.offers.append(
                    Offer(
                        req_id,
                        prompt.transfer_id,
                        prompt.request.num_prompt_tokens,
                        prompt.params.codec,
                        prompt.params.faults,
                    )
                )
        meta.encodes, self._encodes = self._encodes, []
        meta.cancels.extend(self._cancels)
        self._cancels = []

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Hold the blocks until they are encoded and answer with the handle; an aborted request is cancelled."""
        prompt = self._prompts.pop(request.request_id, None)
        if prompt is None or not prompt.offered:
            return False, None
        done = request.status in (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)
        if not done or not request.output_token_ids:
            self._cancels.append(request.request_id)
            return False, None
        self._encodes.append(Encode(request.request_id, list(block_ids)))
        assert request.prompt_token_ids is not None
        handle = RemotePrefill(
            transfer_id=prompt.transfer_id,
            generation=self._generation,
            host=self._settings.announced_host,
            port=self._settings.port,
            prompt_tokens=request.num_prompt_tokens,
            prompt_digest=request_digest(request),
            first_token=request.output_token_ids[0],
            codec=prompt.params.codec,
            max_draft=prompt.params.max_draft,
            token_times=False,
        )
        return True, handle.to_params()
