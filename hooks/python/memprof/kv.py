"""Marks by which an engine reports how it divides a KV cache among its sequences.

    cache = memprof.kv.Cache(slots=16384, token_bytes=131072, block=16, name="decoder")
    cache.reserve(request, blocks=[4, 5, 6], prompt=40)  # adds blocks behind those it has
    cache.append(request, 40)                            # 40 tokens fill its slots in order
    cache.step()                                         # one token more for each running sequence
    cache.share(other, blocks=[4, 5])                    # both use the blocks from here on
    cache.append(other, 32)
    cache.free(request, kept=32)                         # the content of two blocks is kept
    cache.end()

A slot holds the keys and values of one token. Without `block` the cache is contiguous, and
`reserve` takes a number of slots. Any key of a dict can name a sequence. Reserve slots before
you append tokens.

Outside `memprof record`, and for a cache made before CUDA was used, marks do nothing. A mark that
cannot be true (a token without a slot, a free of a sequence without slots) is an error of
`memprof report`, which says where. It is never an error of the job.

transformers' caches, in `generate` and in continuous batching, need no marks.

An engine that keeps block tables says what is in them, and `Tables` finds out what has changed:

    tables = memprof.kv.Tables(cache)
    tables.set(request, blocks=[4, 5, 6], tokens=40)  # after each step, or when they change
    tables.free(request, kept=[4, 5])

memprof.adapters has such adapters for vLLM and SGLang.
"""

import ctypes
import itertools

from memprof import _calls, _hook

__all__ = ["Cache", "Tables"]


def _runs(blocks):
    """[first, count] for each run of consecutive numbers in a list."""
    runs = []
    for block in blocks:
        if runs and runs[-1][0] + runs[-1][1] == block:
            runs[-1][1] += 1
        else:
            runs.append([block, 1])
    return runs


class Cache:
    """One KV cache.

    slots        number of slots; 0 if the cache always has as many as are reserved
    token_bytes  bytes of the keys and values of one token, in all layers
    block        slots of a block; 0 for a contiguous cache
    null         blocks that are never handed out
    beams        sequences that share a prompt, each with a copy of its keys and values
    """

    def __init__(self, slots, token_bytes, block=0, null=0, name="", engine="", device=0, beams=1):
        self.block = int(block)
        self._numbers = {}  # sequence that has not been freed: its number in the trace
        self._next = 0
        self._library = lib = _hook.library()
        if lib is None:
            self._cache = 0
            return
        layout = "paged" if block else "contiguous"
        fields = dict(layout=layout, block=block, null=null, engine=engine, name=name, beams=beams if beams > 1 else 0)
        self._cache = lib.memprof_kv_cache(int(device), int(slots), int(token_bytes), _hook.fields(fields))

    def __bool__(self):
        """True while marks of the cache are recorded."""
        return self._cache != 0

    def _number(self, sequence):
        number = self._numbers.get(sequence)
        if number is None:
            number = self._numbers[sequence] = self._next
            self._next += 1
        return number

    def reserve(self, sequence, slots=0, blocks=(), prompt=0, padding=0):
        """Reserves `slots` slots (contiguous cache) or these `blocks` (paged) for the sequence.

        `prompt` is the number of tokens of its prompt, 0 if unknown. `padding` of the slots will
        never be filled.
        """
        if not self._cache:
            return
        number = self._number(sequence)
        if not self.block:
            self._library.memprof_kv_reserve(self._cache, number, int(padding), int(slots), int(prompt))
        for first, count in _runs(blocks):
            self._library.memprof_kv_reserve(self._cache, number, first, count * self.block, int(prompt))

    def reserve_all(self, slots):
        """Reserves `slots` more slots for each sequence of a contiguous cache."""
        if self._cache:
            self._library.memprof_kv_reserve(self._cache, _calls.KV_ALL, 0, int(slots), 0)

    def share(self, sequence, blocks, position=None):
        """The sequence uses these blocks, which another sequence uses or has used.

        With `position` they replace its own blocks from that one on, counted from 0.
        """
        if not self._cache:
            return
        number = self._number(sequence)
        if position is None:
            for first, count in _runs(blocks):
                self._library.memprof_kv_share(self._cache, number, first, count * self.block, -1)
            return
        for i, block in enumerate(blocks):
            self._library.memprof_kv_share(self._cache, number, block, self.block, position + i)

    def append(self, sequence, tokens=1):
        """`tokens` tokens fill the next slots of the sequence."""
        if self._cache:
            self._library.memprof_kv_append(self._cache, self._number(sequence), int(tokens))

    def append_many(self, tokens):
        """As `append`, for a dict of sequence: number of tokens."""
        if self._cache and tokens:
            numbers = (ctypes.c_int64 * len(tokens))(*[self._number(s) for s in tokens])
            counts = (ctypes.c_uint64 * len(tokens))(*tokens.values())
            self._library.memprof_kv_append_many(self._cache, len(tokens), numbers, counts)

    def step(self, tokens=1):
        """`tokens` tokens fill the next slots of every sequence that has tokens and has not finished."""
        if self._cache:
            self._library.memprof_kv_append(self._cache, _calls.KV_ALL, int(tokens))

    def finish(self, sequence):
        """The sequence has its last token. It keeps its slots until it is freed."""
        if self._cache:
            self._library.memprof_kv_append(self._cache, self._number(sequence), 0)

    def free(self, sequence, kept=0):
        """The sequence returns its slots. The first `kept` keep their content for other sequences."""
        if self._cache:
            number = self._number(sequence)
            del self._numbers[sequence]
            self._library.memprof_kv_free(self._cache, number, int(kept))

    def swap_out(self, sequence):
        """The content of the sequence is copied to the host, and its blocks are free (paged cache)."""
        if self._cache:
            self._library.memprof_kv_swap_out(self._cache, self._number(sequence))

    def swap_in(self, sequence, blocks):
        """The content of the sequence is copied back, into these blocks."""
        if self._cache:
            for first, count in _runs(blocks):
                self._library.memprof_kv_swap_in(self._cache, self._number(sequence), first, count * self.block)

    def keep(self, blocks):
        """The content of these blocks, which no sequence uses, is kept for sequences to come."""
        if self._cache:
            for first, count in _runs(blocks):
                self._library.memprof_kv_share(self._cache, _calls.KV_ALL, first, count * self.block, -1)

    def drop(self, blocks):
        """The content of these kept blocks is dropped."""
        if self._cache:
            for first, count in _runs(blocks):
                self._library.memprof_kv_drop(self._cache, first, count * self.block)

    def end(self):
        """The cache ends, with all its sequences."""
        if self._cache:
            self._library.memprof_kv_end(self._cache)
        self._cache = 0
        self._numbers.clear()


class Tables:
    """Marks a paged cache by its block tables: each is compared with what it was, and the difference is marked.

    An engine's null block must not be in a table.
    """

    def __init__(self, cache):
        self.cache = cache
        self.of = {}  # sequence: its blocks
        self.tokens = {}  # sequence: its tokens
        self.users = {}  # block: in how many tables it is
        self.kept = set()  # blocks in no table whose content is kept

    def set(self, sequence, blocks, tokens=0, found=0, prompt=0):
        """The sequence has these blocks, and `tokens` tokens in them.

        The first `found` tokens are the content of blocks that were kept. A kept block behind them is a new one,
        whose content was dropped.
        """
        before, blocks = self.of.setdefault(sequence, []), list(blocks)
        if len(blocks) < len(before):
            raise ValueError("sequence %r had %d blocks and has %d: free it first" % (sequence, len(before), len(blocks)))
        for i, (old, new) in enumerate(zip(before, blocks)):
            if old != new:
                if new not in self.users and new not in self.kept:
                    self.cache.keep([new])  # a copy of the old one
                self._use(new)
                self._leave(old)
                self.cache.share(sequence, [new], position=i)
        full = found // max(1, self.cache.block)
        more = [(b in self.users or b in self.kept and i < full, b) for i, b in enumerate(blocks) if i >= len(before)]
        for shared, run in itertools.groupby(more, lambda pair: pair[0]):
            run = [block for _, block in run]
            for block in run:
                self._use(block)
            if shared:
                self.cache.share(sequence, blocks=run)
            else:
                self.cache.reserve(sequence, blocks=run, prompt=prompt)
        self.of[sequence] = blocks
        if tokens > self.tokens.get(sequence, 0):
            self.cache.append(sequence, tokens - self.tokens.get(sequence, 0))
            self.tokens[sequence] = tokens

    def free(self, sequence, kept=()):
        """The sequence returns its blocks. The content of those in `kept` stays for others."""
        blocks = self.of.pop(sequence, None)
        self.tokens.pop(sequence, None)
        if blocks is None:
            return
        leading, stays = 0, []
        for i, block in enumerate(blocks):
            self._leave(block)
            if block in kept and block not in self.users:
                stays.append(block)
            if leading == i and (block in kept or block in self.users):
                leading += 1
        self.cache.free(sequence, kept=leading * self.cache.block)
        self.kept.update(stays)
        self.cache.keep([block for block in stays if block not in blocks[:leading]])

    def swap_out(self, sequence):
        """The sequence's content goes to the host."""
        for block in self.of.pop(sequence, ()):
            self._leave(block)
        self.cache.swap_out(sequence)

    def swap_in(self, sequence, blocks):
        """The sequence's content comes back, into these blocks."""
        for block in blocks:
            self._use(block)
        self.of[sequence] = list(blocks)
        self.cache.swap_in(sequence, blocks)

    def drop(self, blocks):
        """The content of kept blocks is dropped. Blocks in tables are passed over."""
        dropped = [block for block in blocks if block in self.kept]
        self.kept.difference_update(dropped)
        self.cache.drop(dropped)

    def _use(self, block):
        self.users[block] = self.users.get(block, 0) + 1
        self.kept.discard(block)

    def _leave(self, block):
        self.users[block] -= 1
        if not self.users[block]:
            del self.users[block]
