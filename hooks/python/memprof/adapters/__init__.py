"""Adapters that mark the KV caches of serving engines by memprof.kv.

    import memprof.adapters.vllm
    memprof.adapters.vllm.follow(scheduler.kv_cache_manager, token_bytes=131072)

    import memprof.adapters.sglang
    memprof.adapters.sglang.follow(scheduler.tree_cache, token_bytes=131072)

Each is about 30 lines, and a pattern for other engines that have a block table. They were written from the engines'
sources (vLLM's V1 KVCacheManager, SGLang's RadixCache and its token pool) and run against objects with the same
calls, not with the engines themselves. An adapter is switched off at its first error, and never breaks the engine.
"""

import functools


def after(guard, owner, name, then):
    """Replaces a method of one object by one that calls `then(result, *arguments)` behind it."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def wrapped(*arguments, **named):
        result = method(*arguments, **named)
        guard(then, result, *arguments, **named)
        return result

    setattr(owner, name, wrapped)


def before(guard, owner, name, then):
    """Replaces a method of one object by one that calls `then(*arguments)` before it."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def wrapped(*arguments, **named):
        guard(then, *arguments, **named)
        return method(*arguments, **named)

    setattr(owner, name, wrapped)
