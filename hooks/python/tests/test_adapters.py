"""Adapters of engines, against objects with the calls of vLLM's and SGLang's block pools."""

import unittest

import test_kv

VLLM = test_kv.SAID + """
del calls[:]
class Block:
    def __init__(self, number): self.block_id, self.block_hash, self.ref_cnt = number, None, 0
class Named:
    def __init__(self, **named): self.__dict__.update(named)
class Pool:
    def __init__(self, blocks):
        self.num_gpu_blocks, self.blocks = blocks, [Block(i) for i in range(blocks)]
        self.null_block, self.queue = self.blocks[0], self.blocks[1:]
    def take(self):
        block = self.queue.pop(0)
        block.block_hash, block.ref_cnt = None, 1
        return block
class Manager:
    def __init__(self, blocks, size):
        self.block_pool, self.size, self.tables = Pool(blocks), size, {}
        self.kv_cache_config = Named(kv_cache_groups=[Named(kv_cache_spec=Named(block_size=size))])
    def get_block_ids(self, request_id): return ([b.block_id for b in self.tables.get(request_id, [])],)
    def allocate_slots(self, request, num_new_tokens, num_new_computed_tokens=0, new_computed_blocks=None):
        table = list(self.tables.get(request.request_id, []))
        for block in new_computed_blocks or []:
            if block.ref_cnt == 0: self.block_pool.queue.remove(block)
            block.ref_cnt += 1
            table.append(block)
        need = -(-(request.num_computed_tokens + num_new_computed_tokens + num_new_tokens) // self.size) - len(table)
        if need > len(self.block_pool.queue): return None
        table += [self.block_pool.take() for _ in range(need)]
        self.tables[request.request_id] = table
        full = (request.num_computed_tokens + num_new_computed_tokens + num_new_tokens) // self.size
        for block in table[:full]: block.block_hash = "hash"
        return table
    def free(self, request):
        for block in reversed(self.tables.pop(request.request_id)):
            block.ref_cnt -= 1
            if block.ref_cnt == 0: self.block_pool.queue.append(block)
    def reset_prefix_cache(self):
        for block in self.block_pool.blocks: block.block_hash = None
        return True
def request(name, prompt): return Named(request_id=name, num_computed_tokens=0, num_prompt_tokens=prompt)
import memprof.adapters.vllm
"""

SGLANG = test_kv.SAID + """
del calls[:]
class Named:
    def __init__(self, **named): self.__dict__.update(named)
class Slots(list):
    def tolist(self): return list(self)
class Rows(dict):
    def __getitem__(self, at): return Slots(self.get(at[0])[at[1]])
class Pool:
    def __init__(self, size): self.size, self.slots = size, list(range(2, size + 2))
    def free(self, slots): self.slots += slots
class Tree:  # page 2: knows one prefix at a time
    def __init__(self, size):
        self.token_to_kv_pool_allocator, self.page_size = Pool(size), 2
        self.req_to_token_pool, self.known = Named(req_to_token=Rows()), {}
    def cache_finished_req(self, req, is_insert=True):
        row = self.req_to_token_pool.req_to_token[req.req_pool_idx, :len(req.tokens)]
        aligned, pool = len(row) // 2 * 2, self.token_to_kv_pool_allocator
        known = self.known.get(req.tokens[0], Slots())
        duplicate = min(len(known), aligned)
        pool.free(Slots(row[len(req.prefix_indices):duplicate]))
        self.known[req.tokens[0]] = Slots(known + row[duplicate:aligned])
        pool.free(Slots(row[aligned:] + ([row[aligned] + 1] if len(row) > aligned else [])))
    def cache_unfinished_req(self, req, chunked=False): pass
    def evict(self, first): self.token_to_kv_pool_allocator.free(self.known.pop(first))
tree = Tree(16)
import memprof.adapters.sglang
allocated = memprof.adapters.sglang.follow(tree, 100)
def extend(index, rid, tokens):
    prefix = tree.known.get(tokens[0], Slots())
    row = list(prefix)
    while len(row) < len(tokens): row.append(tree.token_to_kv_pool_allocator.slots.pop(0))
    if len(row) % 2: row.append(tree.token_to_kv_pool_allocator.slots.pop(0))
    tree.req_to_token_pool.req_to_token[index] = row
    req = Named(rid=rid, req_pool_idx=index, tokens=tokens, origin_input_ids=tokens, prefix_indices=prefix)
    allocated(Named(reqs=[req], seq_lens=Slots([len(tokens)])))
    return req
"""


class EngineTest(unittest.TestCase):
    setUp, check = test_kv.AdapterTest.setUp, test_kv.AdapterTest.check

    def test_vllm(self):
        # a has 6 tokens in blocks of 4 and grows; b finds a's first block; a goes, c takes what is not found any more.
        self.check(
            VLLM,
            """
            manager = Manager(6, 4)
            memprof.adapters.vllm.follow(manager, 100, name="main")
            a, b, c = request("a", 6), request("b", 5), request("c", 12)
            manager.allocate_slots(a, 6)
            a.num_computed_tokens = 6
            manager.allocate_slots(a, 1)
            print(said())
            manager.allocate_slots(b, 1, 4, new_computed_blocks=manager.tables["a"][:1])
            print(said())
            manager.free(a)
            print(said())
            print(manager.allocate_slots(c, 17), repr(said()))
            manager.allocate_slots(c, 12)
            print(said())
            manager.free(b)
            manager.free(c)
            manager.reset_prefix_cache()
            print(said())
            """,
            """
            cache slots=24 token=100 layout=paged block=4 null=1 engine=vLLM name=main; reserve 0 1 8 6; append 0 6; append 0 1
            share 1 1 4 -1; reserve 1 3 4 5; append 1 5
            free 0 4
            None ''
            reserve 2 4 8 12; reserve 2 2 4 12; append 2 12
            free 1 4; free 2 12; drop 1 8; drop 4 8
            """,
        )

    def test_vllm_that_is_not_as_expected(self):
        self.check(
            VLLM,
            """
            manager = Manager(6, 4)
            memprof.adapters.vllm.follow(manager, 100)
            manager.get_block_ids = lambda request_id: [3]
            print(len(manager.allocate_slots(request("a", 6), 6)))
            print(problems())
            """,
            """
            2
            ["KV cache of vLLM: TypeError: 'int' object is not iterable; from here on it is not recorded"]
            """,
        )

    def test_sglang(self):
        # Pages of 2. The tree keeps the first request's two full pages, which the second finds; then it is evicted.
        self.check(
            SGLANG,
            """
            first = extend(0, "first", [7, 8, 9, 10, 11])
            print(said())
            tree.cache_finished_req(first)
            print(said())
            second = extend(1, "second", [7, 8, 9, 10, 12, 13])
            print(said())
            tree.cache_finished_req(second)
            tree.evict(7)
            print(said(), problems())
            """,
            """
            cache slots=18 token=100 layout=paged block=2 null=1 engine=SGLang; reserve 0 1 6 5; append 0 5
            free 0 4
            share 1 1 4 -1; reserve 1 4 2 6; append 1 6
            free 1 6; drop 1 4; drop 4 2 []
            """,
        )

