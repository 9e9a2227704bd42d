"""Follows the pages that requests of SGLang have, by its RadixCache and token pool. See memprof.adapters for what was run.

The tree keeps the pages of requests that have ended until the pool's `free` takes them. `allocated(batch)` has to be
called after the pages of a batch are allocated: in alloc_for_extend and alloc_for_decode.
"""

from memprof import kv
from memprof._kv.guard import Guard
from memprof.adapters import after, before


def follow(tree, token_bytes, name="", device=0):
    """Marks what the tree and its pool do from now on, and returns `allocated`."""
    pool, rows, page = tree.token_to_kv_pool_allocator, tree.req_to_token_pool, tree.page_size
    cache = kv.Cache(pool.size + page, token_bytes, block=page, null=1, name=name, engine="SGLang", device=device)
    tables, guard, gone = kv.Tables(cache), Guard("SGLang"), set()

    def pages(request, tokens):
        return [slot // page for slot in rows.req_to_token[request.req_pool_idx, :tokens:page].tolist()]

    def allocated(batch):
        for request, tokens in zip(batch.reqs, batch.seq_lens.tolist()):
            found = len(request.prefix_indices)
            tables.set(request.rid, pages(request, tokens), tokens, found, prompt=len(request.origin_input_ids))

    def unfinished(_, request, *rest, **named):  # equal pages of the tree are now in the place of its own
        tables.set(request.rid, pages(request, tables.tokens.get(request.rid, 0)))

    def finished(_, request, *rest, **named):
        tables.free(request.rid, [b for b in tables.of.get(request.rid, ()) if b not in gone])
        gone.clear()

    def freed(slots, *rest, **named):
        blocks = {slot // page for slot in slots.tolist()}
        gone.update(blocks)
        tables.drop(sorted(blocks))

    before(guard, pool, "free", freed)
    after(guard, tree, "cache_finished_req", finished)
    after(guard, tree, "cache_unfinished_req", unfinished)
    return lambda batch: guard(allocated, batch)
