"""What the prefix cache may learn: nothing of pages that hold anchors only, and codecs apart from each other."""

from __future__ import annotations

from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import Request


def delay_hashing_of(manager: KVCacheManager, drafting: dict[str, Any]) -> None:
    """Keep blocks of requests in `drafting` out of the prefix cache until they leave it.

    Without it a second request with the same prompt reuses anchor-only blocks and its text is wrong
    (kv_cache_manager.py:238 `delay_cache_blocks`, :553 `cache_blocks`).
    """
    allocate, cache = manager.allocate_slots, manager.cache_blocks

    def allocate_slots(request: Request, *args: Any, **kwargs: Any) -> Any:
        if request.request_id in drafting:
            kwargs["delay_cache_blocks"] = True
        return allocate(request, *args, **kwargs)

    def cache_blocks(request: Request, num_computed_tokens: int) -> None:
        if request.request_id not in drafting:
            cache(request, num_computed_tokens)

    manager.allocate_slots = allocate_slots  # type: ignore[method-assign]
    manager.cache_blocks = cache_blocks  # type: ignore[method-assign]


def rehash_with_salt(request: Request, salt: str | None) -> None:
    """Set a request's cache salt and hash its blocks anew.

    The salt is an extra key of the first block's hash and so of every block behind it
    (kv_cache_utils.py:546, generate_block_hash_extra_keys).
    """
    request.cache_salt = salt
    request.block_hashes.clear()
    request.update_block_hashes()
