"""A made-up transformers: as much of its generation as the adapters touch, in the shapes of the real one.

Tensors have shapes and no content. `generate` appends to its cache what a model would, and asks
its stopping criteria after every token. The paged cache hands out blocks from the front of a
queue, shares full blocks of equal prompts and keeps them when they are freed, as the real one.
"""

import os
import textwrap

FILES = {
    "__init__.py": "",
    "tensors.py": """
        class Tensor:
            def __init__(self, *shape): self.shape, self.device = shape, Device()
            def element_size(self): return 2
            def numel(self):
                n = 1
                for s in self.shape: n *= s
                return n
        class Device: index = 0
        class Rows:
            def __init__(self, rows): self.rows, self.ndim, self.shape = rows, 1, (len(rows),)
            def tolist(self): return list(self.rows)
        class Mask:
            ndim = 2
            def __init__(self, rows): self.rows = rows
            def sum(self, axis): return Rows([sum(r) for r in self.rows])
    """,
    "cache_utils.py": """
        from transformers.tensors import Tensor
        class DynamicLayer:
            keys = values = None
            def update(self, rows, tokens, heads=2, dim=4):
                slots = tokens + (self.keys.shape[-2] if self.keys else 0)
                self.keys, self.values = Tensor(rows, heads, slots, dim), Tensor(rows, heads, slots, dim)
            def reorder(self, beam_idx):  # index_select: as many rows as indices, in tensors of their own
                self.keys = Tensor(len(beam_idx), *self.keys.shape[1:])
                self.values = Tensor(len(beam_idx), *self.values.shape[1:])
        class StaticLayer:
            is_compileable = True
            keys = values = None
            def __init__(self, max_cache_len): self.max_cache_len = max_cache_len
            def update(self, rows, tokens, heads=2, dim=4):
                if self.keys is None:
                    self.keys, self.values = Tensor(rows, heads, self.max_cache_len, dim), Tensor(rows, heads, self.max_cache_len, dim)
            reorder = DynamicLayer.reorder
        class DynamicSlidingWindowLayer(DynamicLayer): pass
        class Cache:
            def reorder_cache(self, beam_idx):
                for layer in self.layers: layer.reorder(beam_idx)
        class DynamicCache(Cache):
            def __init__(self, layers=3, kind=DynamicLayer): self.layers = [kind() for _ in range(layers)]
        class StaticCache(Cache):
            def __init__(self, max_cache_len, layers=3): self.layers = [StaticLayer(max_cache_len) for _ in range(layers)]
    """,
    "generation/__init__.py": "",
    "generation/stopping_criteria.py": """
        from transformers.tensors import Rows
        class StoppingCriteriaList(list):
            def __call__(self, input_ids, scores, **kwargs):
                return Rows([any(row) for row in zip(*[criteria(input_ids) for criteria in self])])
    """,
    "generation/utils.py": """
        from transformers.cache_utils import DynamicCache, StaticCache
        from transformers.generation.stopping_criteria import StoppingCriteriaList
        from transformers.tensors import Tensor
        class Config:
            def __init__(self, cache=None, num_beams=1): self.cache, self.num_beams = cache, num_beams
        class GenerationMixin:
            def _prepare_cache_for_generation(self, generation_config, model_kwargs, generation_mode, batch_size, max_cache_length):
                cache = generation_config.cache
                model_kwargs["past_key_values"] = cache(max_cache_length) if cache is StaticCache else cache() if cache else DynamicCache()
            def generate(self, rows, length, outputs, attention_mask=None, cache=None, max_cache_length=16, fail=None,
                         num_beams=1, num_return_sequences=1, search="vectorised"):
                config, kwargs = Config(cache, num_beams), {"attention_mask": attention_mask}
                self._prepare_cache_for_generation(config, kwargs, None, rows, max_cache_length)
                expand = max(num_beams, num_return_sequences)  # _expand_inputs_for_generation
                if num_beams > 1: return getattr(self, search)(rows * expand, rows, num_beams, length, max(outputs), kwargs["past_key_values"])
                rows, outputs = rows * expand, [n for n in outputs for _ in range(expand)]
                criteria = StoppingCriteriaList([lambda ids: [ids.shape[1] - length >= n for n in outputs]])
                new, total, unfinished = length, length, [True] * rows
                while any(unfinished):
                    for layer in kwargs["past_key_values"].layers: layer.update(rows, new)
                    total, new = total + 1, 1
                    if total == fail: raise MemoryError("out of memory")
                    done = criteria(Tensor(rows, total), None)
                    unfinished = [u and not d for u, d in zip(unfinished, done.tolist())]
                return total
            def vectorised(self, rows, batch, num_beams, length, output, cache, prefill=None):
                # Since 4.50: asks about all candidates, at least two for each beam, before the cache is reordered.
                criteria = StoppingCriteriaList([lambda ids: [ids.shape[1] - length >= output] * ids.shape[0]])
                new, total, unfinished = length, length, True
                while unfinished:
                    for layer in cache.layers: layer.update(prefill or rows, new)
                    total, new, prefill = total + 1, 1, None
                    done = criteria(Tensor(batch * 2 * num_beams, total), None)
                    cache.reorder_cache([0] * rows)
                    unfinished = not all(done.tolist())
                return total
            def prefill_first(self, rows, batch, *rest):
                # The prompts go through the model once, and their rows become beams after that.
                return self.vectorised(rows, batch, *rest, prefill=batch)
            def scored(self, rows, batch, num_beams, length, output, cache):
                # Before: asks about the beams, after the cache was reordered, unless the scorer is through.
                criteria = StoppingCriteriaList([lambda ids: [ids.shape[1] - length >= output] * ids.shape[0]])
                new, total, unfinished = length, length, True
                while unfinished:
                    for layer in cache.layers: layer.update(rows, new)
                    total, new = total + 1, 1
                    cache.reorder_cache([0] * rows)
                    unfinished = not all(criteria(Tensor(rows, total), None).tolist())
                return total
    """,
    "generation/continuous_batching/__init__.py": "",
    "generation/continuous_batching/cache.py": """
        from collections import deque
        from transformers.tensors import Tensor, Device
        class BlockManager:
            def __init__(self, blocks):
                self._uninit_block_ids, self._init_block_ids = deque(range(blocks)), {}
                self.references, self.hashes = {}, {}
            def get_free_blocks(self, n):
                while len(self._uninit_block_ids) < n:
                    block = self._init_block_ids.popitem()[0]
                    self.hashes = {h: b for h, b in self.hashes.items() if b != block}
                    self._uninit_block_ids.append(block)
                blocks = [self._uninit_block_ids.popleft() for _ in range(n)]
                for block in blocks: self.references[block] = 1
                return blocks
            def increase(self, block):
                self._init_block_ids.pop(block, None)
                self.references[block] = self.references.get(block, 0) + 1
            def decrease(self, block):
                self.references[block] -= 1
                if self.references[block] == 0:
                    if block in self.hashes.values(): self._init_block_ids[block] = None
                    else: self._uninit_block_ids.append(block)
        class FullAttentionCacheAllocator:
            def __init__(self): self.block_table = {}
        class Ledger:
            def __init__(self, manager): self.manager = manager
            cached_blocks = property(lambda self: self.manager._init_block_ids)
        class SlidingAttentionCacheAllocator(FullAttentionCacheAllocator): pass
        class PagedAttentionCache:
            def __init__(self, blocks, block_size, kind=FullAttentionCacheAllocator, sectors=False):
                self.num_blocks, self.block_size = blocks, block_size
                if sectors:  # the layout of later versions: one tensor, an allocator for each kind of attention
                    self.cache_tensor, allocator = Tensor((blocks + 2) * block_size * 64), kind()
                    self._blocks = BlockManager(blocks)
                    allocator.tokens_per_page, allocator.num_blocks, allocator.bytes_per_block = block_size, blocks, 64 * block_size
                    allocator.ledger = Ledger(self._blocks)
                    self.cache_allocators, self._tables = {"full_attention": allocator}, allocator.block_table
                    return
                shape = ((blocks + 2) * block_size, 2, 4)
                self.key_cache, self.value_cache = [Tensor(*shape), Tensor(*shape)], [Tensor(*shape), Tensor(*shape)]
                self.group_cache_managers, self._block_manager = [kind()], BlockManager(blocks)
                self._blocks, self._tables = self._block_manager, self.group_cache_managers[0].block_table
            def search_prefix_match(self, request, prompt):
                blocks = []
                for at in range(0, len(prompt) - len(prompt) % self.block_size, self.block_size):
                    block = self._blocks.hashes.get(tuple(prompt[: at + self.block_size]))
                    if block is None: break
                    self._blocks.increase(block)
                    blocks.append(block)
                if blocks: self._tables[request] = blocks
                return len(blocks) * self.block_size
            def allocate(self, request, tokens):
                table = self._tables.setdefault(request, [])
                table.extend(self._blocks.get_free_blocks(-(-tokens // self.block_size) - len(table)))
            def complete(self, request, prompt):
                table, manager = self._tables[request], self._blocks
                for i in range(len(prompt) // self.block_size):
                    content = tuple(prompt[: (i + 1) * self.block_size])
                    other = manager.hashes.setdefault(content, table[i])
                    if other != table[i]:
                        manager.increase(other)
                        manager.decrease(table[i])
                        table[i] = other
            def extend_read_and_write_indices(self, request_id, past_length, query_length, read_index, write_index):
                write_index.append(request_id)
            def fill_block_table(self, request_id, past_length, query_length, block_table):
                block_table.append(request_id)
            def free_blocks(self, request_id):
                for block in self._tables.pop(request_id): self._blocks.decrease(block)
            def free_all_requests(self):
                for request in list(self._tables): self.free_blocks(request)
    """,
    "generation/continuous_batching/input_outputs.py": """
        class ContinuousBatchingIOs:
            def __init__(self, cache): self.cache = cache
            def prepare_batch_tensors(self, requests):
                for request, past, query in requests:
                    self.cache.extend_read_and_write_indices(request, past, query, [], [])
    """,
}


def write_transformers(folder):
    """Writes the made-up transformers below `folder`."""
    for name, text in FILES.items():
        path = os.path.join(folder, "transformers", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(textwrap.dedent(text))
