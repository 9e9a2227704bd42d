"""Follows the blocks that a KVCacheManager of vLLM V1 hands out. See memprof.adapters for what was run.

A model with layers of several kinds has a table for each group of layers, whose blocks come from one pool. All are
followed: the blocks of a request are those of its groups, one group after the other, and its tokens fill those of the
first. vLLM's null block, which stands for what a window has left behind, is left out.
"""

from memprof import kv
from memprof._kv.guard import Guard
from memprof.adapters import after, before


def follow(manager, token_bytes, name="", device=0):
    """Marks what `manager` does from now on. `token_bytes` are those of one token in all layers of a group."""
    pool = manager.block_pool
    block = manager.kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size
    cache = kv.Cache(pool.num_gpu_blocks * block, token_bytes, block=block, null=1, name=name, engine="vLLM", device=device)
    tables, guard = kv.Tables(cache), Guard("vLLM")

    def blocks_of(request):
        return [b for b in manager.get_block_ids(request.request_id)[0] if b != pool.null_block.block_id]

    def allocated(result, request, num_new_tokens, num_new_computed_tokens=0, *_, **named):
        if result is None:
            return  # no room: nothing has changed
        found = num_new_computed_tokens + named.get("num_external_computed_tokens", 0)
        tokens = request.num_computed_tokens + found + num_new_tokens
        tables.set(request.request_id, blocks_of(request), tokens, found, prompt=request.num_prompt_tokens)

    def freeing(request):
        kept = [b for b in blocks_of(request) if pool.blocks[b].block_hash is not None]
        tables.free(request.request_id, kept)

    after(guard, manager, "allocate_slots", allocated)
    before(guard, manager, "free", freeing)
    after(guard, manager, "reset_prefix_cache", lambda done: tables.drop(sorted(tables.kept)) if done else None)
    return tables
