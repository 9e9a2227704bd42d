"""Marks for memory of keys and values, by the engine that divides it among its sequences.

    cache = memprof.kv.Cache(slots=16384, token_bytes=131072, block=16, name="decoder")
    cache.reserve(request, blocks=[4, 5, 6], prompt=40)  # they come behind those it has
    cache.append(request, 40)                            # its tokens fill them in their order
    cache.step()                                         # a token more for each that has any
    cache.share(other, blocks=[4, 5])                    # used by both from here on
    cache.append(other, 32)
    cache.free(request, kept=32)                         # the content of two blocks stays
    cache.end()

A slot is room for one token. Without `block` the cache is contiguous, and `reserve` takes a
number of slots. Requests may be named by anything that can be the key of a dict. Reserve
before you append. Outside `memprof record`, and in caches made before CUDA was used, the marks
do nothing; what cannot be (a token without a slot, a free of what has nothing) is an error of
`memprof report`, which says where, and never one of the job.

transformers' caches in `generate` and in continuous batching are told without any marks.
"""

import ctypes

from memprof import _calls, _hook

__all__ = ["Cache"]


def _runs(blocks):
    """(first, count) of the stretches of consecutive numbers in a list."""
    runs = []
    for block in blocks:
        if runs and runs[-1][0] + runs[-1][1] == block:
            runs[-1][1] += 1
        else:
            runs.append([block, 1])
    return runs


class Cache:
    """One memory for keys and values.

    `slots`: how many tokens it has room for, 0: as many as are reserved. `token_bytes`: of the
    keys and values of one token in all layers. `block`: slots of a block, 0: contiguous.
    `null`: blocks that are never handed out. `beams`: sequences that have a prompt in common,
    each with a copy of its keys and values.
    """

    def __init__(self, slots, token_bytes, block=0, null=0, name="", engine="", device=0, beams=1):
        self.block = int(block)
        self._numbers = {}  # of the sequences that have not been freed
        self._next = 0
        self._library = lib = _hook.library()
        if lib is None:
            self._cache = 0
            return
        layout = "paged" if block else "contiguous"
        fields = dict(layout=layout, block=block, null=null, engine=engine, name=name, beams=beams if beams > 1 else 0)
        self._cache = lib.memprof_kv_cache(int(device), int(slots), int(token_bytes), _hook.fields(fields))

    def __bool__(self):
        """True while what is said of the cache is recorded."""
        return self._cache != 0

    def _number(self, sequence):
        number = self._numbers.get(sequence)
        if number is None:
            number = self._numbers[sequence] = self._next
            self._next += 1
        return number

    def reserve(self, sequence, slots=0, blocks=(), prompt=0, padding=0):
        """Gives the sequence slots, or these blocks. `prompt`: the tokens of its prompt, where known.

        `padding` of the slots will never be filled.
        """
        if not self._cache:
            return
        number = self._number(sequence)
        if not self.block:
            self._library.memprof_kv_reserve(self._cache, number, int(padding), int(slots), int(prompt))
        for first, count in _runs(blocks):
            self._library.memprof_kv_reserve(self._cache, number, first, count * self.block, int(prompt))

    def reserve_all(self, slots):
        """Gives each sequence of a contiguous cache so many slots more."""
        if self._cache:
            self._library.memprof_kv_reserve(self._cache, _calls.KV_ALL, 0, int(slots), 0)

    def share(self, sequence, blocks, position=None):
        """Has the sequence use these blocks, which others use or used, too.

        `position`: the first of its own blocks, counted from 0, that they take the place of.
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
        """Fills the next slots of the sequence."""
        if self._cache:
            self._library.memprof_kv_append(self._cache, self._number(sequence), int(tokens))

    def append_many(self, tokens):
        """Does so for a dict of sequences and numbers of tokens."""
        if self._cache and tokens:
            numbers = (ctypes.c_int64 * len(tokens))(*[self._number(s) for s in tokens])
            counts = (ctypes.c_uint64 * len(tokens))(*tokens.values())
            self._library.memprof_kv_append_many(self._cache, len(tokens), numbers, counts)

    def step(self, tokens=1):
        """Fills the next slots of every sequence that has tokens and has not finished."""
        if self._cache:
            self._library.memprof_kv_append(self._cache, _calls.KV_ALL, int(tokens))

    def finish(self, sequence):
        """Says that the sequence has its last token; it keeps its slots until it is freed."""
        if self._cache:
            self._library.memprof_kv_append(self._cache, self._number(sequence), 0)

    def free(self, sequence, kept=0):
        """Takes the slots of the sequence, of which the first `kept` keep their content for others."""
        if self._cache:
            number = self._number(sequence)
            del self._numbers[sequence]
            self._library.memprof_kv_free(self._cache, number, int(kept))

    def drop(self, blocks):
        """Drops the content of blocks that were kept."""
        if self._cache:
            for first, count in _runs(blocks):
                self._library.memprof_kv_drop(self._cache, first, count * self.block)

    def end(self):
        """Says that the cache, with all sequences in it, is no more."""
        if self._cache:
            self._library.memprof_kv_end(self._cache)
        self._cache = 0
        self._numbers.clear()
