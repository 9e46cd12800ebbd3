"""`kv_transfer_params` of a request: what the proxy sends, what the prefill engine answers, what a client may add.

The contract is that of vLLM's toy proxy: P gets {"do_remote_decode": true}, and what P answers is handed to D as it is.
Must not import vllm: it reads plain dictionaries.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lynx_ascend.codec import servable_codecs
from lynx_ascend.errors import TransferError

# vLLM verifies at most 128 drafts a pass (MAX_SPEC_LEN); the paper caps at 64 because acceptance falls off behind it.
MAX_DRAFT_LIMIT = 127


def is_lynx_request(extra_args: dict[str, Any] | None) -> bool:
    """Whether `SamplingParams.extra_args` belongs to a request of this backend, on either engine."""
    params = (extra_args or {}).get("kv_transfer_params")
    if not isinstance(params, dict):
        return False
    return bool(params.get("do_remote_decode")) or (
        "transfer_id" in params and bool(params.get("do_remote_prefill"))
    )


def prompt_digest(token_ids: Sequence[int], inputs: Sequence[str] = ()) -> str:
    """16 hex digits that identify a prompt: a reference to another prompt's KV is refused by it.

    Args:
        token_ids: the prompt.
        inputs: what shapes its KV beside the tokens, in order (see `request_digest`).
    """
    digest = hashlib.blake2b(array("q", token_ids).tobytes(), digest_size=8)
    for text in inputs:
        digest.update(b"\0" + text.encode())
    return digest.hexdigest()


def request_digest(request: Any) -> str:
    """The digest of a vLLM `Request`: its tokens, its images and sounds (by content hash), its adapter.

    Two prompts with different images have the same placeholder tokens, and another adapter gives other KV.
    """
    inputs = [f"mm:{f.mm_position.offset}:{f.identifier}" for f in request.mm_features]
    if request.lora_request is not None:
        inputs.append(f"lora:{request.lora_request.lora_name}")
    return prompt_digest(request.prompt_token_ids, inputs)


@dataclass(frozen=True, slots=True)
class RemoteDecode:
    """What P was asked: make the KV of this prompt available to a decode engine."""

    codec: str
    max_draft: int
    faults: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class RemotePrefill:
    """A handle to KV that a prefill engine holds, as D reads it from the request."""

    transfer_id: str
    generation: int
    host: str
    port: int
    prompt_tokens: int
    prompt_digest: str
    first_token: int | None
    codec: str
    max_draft: int
    token_times: bool

    def to_params(self) -> dict[str, Any]:
        """The dictionary that P answers and the proxy hands to D."""
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "transfer_id": self.transfer_id,
            "generation": self.generation,
            "remote_host": self.host,
            "remote_port": self.port,
            "prompt_tokens": self.prompt_tokens,
            "prompt_digest": self.prompt_digest,
            "first_token": self.first_token,
            "codec": self.codec,
            "max_draft": self.max_draft,
        }


def _codec(params: dict[str, Any], default: str) -> str:
    name = params.get("codec") or default
    if name not in servable_codecs():
        known = ", ".join(servable_codecs())
        raise TransferError(f"codec is {name!r}, which no transfer can use; choose one of {known}")
    return str(name)


def _integer(params: dict[str, Any], key: str, low: int, high: int, default: int | None = None) -> int:
    value = params.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise TransferError(f"kv_transfer_params[{key!r}] must be an integer in {low}..{high}, got {value!r}")
    return value


def parse_remote_decode(
    params: dict[str, Any] | None, *, codec: str, max_draft: int, allow_faults: bool
) -> RemoteDecode | None:
    """Read P's side of the contract.

    Args:
        params: the request's kv_transfer_params.
        codec, max_draft: the engine's defaults.
        allow_faults: whether the engine runs with fault injection; elsewhere the key is an error.

    Raises:
        TransferError: a value is out of range or a codec is unknown.
    """
    if not params or not params.get("do_remote_decode"):
        return None
    faults = params.get("faults")
    if faults is not None and (not allow_faults or not isinstance(faults, dict)):
        raise TransferError(
            "faults need fault_injection: true in kv_connector_extra_config, and must be an object"
        )
    draft = _integer(params, "max_draft", 1, MAX_DRAFT_LIMIT, max_draft)
    return RemoteDecode(_codec(params, codec), draft, faults)


def parse_remote_prefill(
    params: dict[str, Any] | None, *, codec: str, max_draft: int
) -> RemotePrefill | None:
    """Read D's side of the contract.

    Returns:
        The handle, or None when the request does not ask for a remote prefill.

    Raises:
        TransferError: the reference is malformed.
    """
    if not params or not params.get("do_remote_prefill") or "transfer_id" not in params:
        return None
    transfer_id, host, digest = params["transfer_id"], params.get("remote_host"), params.get("prompt_digest")
    if (
        not isinstance(transfer_id, str)
        or len(transfer_id) != 32
        or set(transfer_id) - set("0123456789abcdef")
    ):
        raise TransferError(f"transfer_id must be 32 hex digits, got {transfer_id!r}")
    if not isinstance(host, str) or not host:
        raise TransferError("remote_host is missing", transfer_id)
    if not isinstance(digest, str):
        raise TransferError("prompt_digest is missing", transfer_id)
    first = params.get("first_token")
    return RemotePrefill(
        transfer_id=transfer_id,
        generation=_integer(params, "generation", 0, 2**32 - 1),
        host=host,
        port=_integer(params, "remote_port", 1, 65535),
        prompt_tokens=_integer(params, "prompt_tokens", 1, 2**31 - 1),
        prompt_digest=digest,
        first_token=None if first is None else _integer(params, "first_token", 0, 2**31 - 1),
        codec=_codec(params, codec),
        max_draft=_integer(params, "max_draft", 1, MAX_DRAFT_LIMIT, max_draft),
        token_times=bool(params.get("token_times")),
    )
