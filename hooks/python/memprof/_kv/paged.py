"""Marks the paged KV cache of transformers' continuous batching.

The cache hands out blocks from a pool to requests, keeps a block table for each request, and
shares full blocks of equal prompts. The calls that change the tables differ between versions, so
we compare each table with the one that was recorded last, and mark the difference. How many slots
a forward pass fills is taken from the calls that prepare the pass, one for each request of the
batch.
"""

import functools
import weakref

from memprof import kv
from memprof._kv.guard import Guard, Unexpected

# Each version of transformers calls one of these once a pass: (request, tokens so far, tokens of this pass).
_FILLING = ("extend_read_and_write_indices", "extend_write_indices", "fill_block_table")
_FREEING = ("free_blocks", "free_all_requests")

_followed = {}  # id of a cache: its _Follower
guard = Guard("transformers' continuous batching")


def install(module):
    """Wraps the paged cache, in transformers.generation.continuous_batching.cache."""
    cls = module.PagedAttentionCache
    filling = [name for name in _FILLING if name in vars(cls)]
    if not filling:
        raise Unexpected("the cache has none of the methods %s" % ", ".join(_FILLING))
    cls.__init__ = _wrap_init(cls.__init__)
    for name in filling:
        setattr(cls, name, _wrap_filling(getattr(cls, name)))
    for name in _FREEING:
        if name in vars(cls):
            setattr(cls, name, _wrap_freeing(getattr(cls, name)))


def install_passes(module):
    """Wraps what prepares a pass, in transformers.generation.continuous_batching.input_outputs.

    In versions without prepare_batch_tensors, a pass ends when one of its requests comes again.
    """
    for cls in [c for c in vars(module).values() if isinstance(c, type) and "prepare_batch_tensors" in vars(c)]:
        cls.prepare_batch_tensors = _wrap_passing(cls.prepare_batch_tensors)


def _wrap_passing(prepare):
    @functools.wraps(prepare)
    def preparing(self, *args, **kwargs):
        result = prepare(self, *args, **kwargs)
        cache = getattr(self, "cache", None)
        if guard.on and id(cache) in _followed:
            guard(_followed[id(cache)].flush, cache)
        return result

    return preparing


def _wrap_init(init):
    @functools.wraps(init)
    def __init__(self, *args, **kwargs):
        init(self, *args, **kwargs)
        guard(_follow, self)

    return __init__


def _follow(cache):
    _followed[id(cache)] = _Follower(cache)
    weakref.finalize(cache, _gone, id(cache)).atexit = False


def _gone(key):
    follower = _followed.pop(key, None)
    if follower is not None:
        follower.kv.end()


def _wrap_filling(fill):
    @functools.wraps(fill)
    def filling(self, request_id, past_length, query_length, *args, **kwargs):
        if guard.on and id(self) in _followed:
            guard(_followed[id(self)].filling, self, request_id, past_length, query_length)
        return fill(self, request_id, past_length, query_length, *args, **kwargs)

    return filling


def _wrap_freeing(free):
    @functools.wraps(free)
    def freeing(self, *args, **kwargs):
        follower = _followed.get(id(self)) if guard.on else None
        if follower is not None:
            guard(follower.flush, self)
        result = free(self, *args, **kwargs)
        if follower is not None:
            guard(follower.freed, self)
        return result

    return freeing


class _Follower:
    """The block tables of a cache as they were recorded last."""

    def __init__(self, cache):
        allocator = _allocator(cache)
        if hasattr(allocator, "tokens_per_page"):
            block, blocks, device = allocator.tokens_per_page, allocator.num_blocks, cache.cache_tensor.device
            token_bytes = allocator.bytes_per_block // block
        else:
            block, blocks, device = cache.block_size, cache.num_blocks, cache.key_cache[0].device
            token_bytes = sum(t.numel() // t.shape[0] * t.element_size() for t in cache.key_cache + cache.value_cache)
        self.kv = kv.Cache(blocks * block, token_bytes, block=block, engine="transformers continuous batching", device=getattr(device, "index", 0) or 0)
        self.block = block
        self.tables = kv.Tables(self.kv)
        self.filled = {}  # request: its tokens
        self.batch = {}  # request of the pass being prepared: its tokens after the pass

    def filling(self, cache, request, past, query):
        """The pass being prepared will fill `query` slots of the request, which has its blocks already."""
        table = _allocator(cache).block_table.get(request)
        if table is None:
            return  # padding of the batch, not a request
        if request in self.batch:
            self.flush(cache)
        if len(table) < len(self.tables.of.get(request, ())):
            raise Unexpected("a request that gives blocks back")
        self.tables.set(request, list(table), found=past)
        self.batch[request] = past + query

    def flush(self, cache):
        """Marks the pass that has been prepared."""
        if not self.batch:
            return
        batch, self.batch = self.batch, {}
        grown = {}
        for request, tokens in batch.items():
            grown[request] = tokens - self.filled.get(request, 0)
            if grown[request] < 0:
                raise Unexpected("a request that shrinks")
            self.filled[request] = tokens
        # If every request with tokens gets one, one mark stands for all.
        decoding = [request for request, tokens in self.filled.items() if tokens > grown.get(request, 0)]
        if decoding and all(grown.get(request, 0) > 0 for request in decoding):
            self.kv.step()
            for request in decoding:
                grown[request] -= 1
        self.kv.append_many({request: n for request, n in grown.items() if n > 0})
        self._dropped(cache)

    def freed(self, cache):
        """Marks requests that no longer have a table as freed."""
        tables, content = _allocator(cache).block_table, _content(cache)
        for request in [r for r in self.tables.of if r not in tables]:
            self.filled.pop(request, None)
            self.tables.free(request, kept=[block for block in self.tables.of[request] if block in content])

    def _dropped(self, cache):
        """Marks kept blocks whose content was dropped."""
        content = _content(cache)
        if len(self.tables.kept) != len(content):
            self.tables.drop(sorted(block for block in self.tables.kept if block not in content))


def _allocator(cache):
    """The object with the block tables of the only group of layers."""
    groups = getattr(cache, "group_cache_managers", None)
    if groups is None:
        groups = list(cache.cache_allocators.values())
    if len(groups) != 1 or "Full" not in type(groups[0]).__name__:
        raise Unexpected("layers in groups (%s)" % ", ".join(type(g).__name__ for g in groups))
    return groups[0]


def _content(cache):
    """The blocks in no table whose content is kept."""
    ledger = getattr(_allocator(cache), "ledger", None)
    if ledger is not None:
        return ledger.cached_blocks
    return getattr(getattr(cache, "_block_manager", None), "_init_block_ids", ())
