"""Marks transformers' KV caches in `generate`, after every token.

Each layer has one tensor of keys and one of values, with a row for each sequence of the batch. A
StaticCache has its full length from the start; a DynamicCache grows with every token. Sequences
end one by one, but keep their slots until the last has ended: the padding before a prompt and the
slots after its end are lost.

In beam search each beam is a sequence: num_beams rows for each prompt, each with its own copy of
the prompt's keys and values. A step that continues with other beams copies rows and changes no
slot. Beams end together, when all prompts have ended.

`generate` calls its stopping criteria after every token, in Python; the result says which
sequences stop. That call is wrapped. The caches' own methods may be compiled or captured, so they
stay as they are. Nothing here keeps a cache alive.
"""

import functools
import threading
import weakref

from memprof import kv
from memprof._kv.guard import Guard, Unexpected

_here = threading.local()  # .open: see _open
_records = {}  # id of a cache that is recorded: its _Record
guard = Guard("transformers' generate")


def install(utils):
    """Wraps `generate` and its stopping criteria, in transformers.generation.utils."""
    mixin, criteria = utils.GenerationMixin, utils.StoppingCriteriaList
    mixin.generate = _wrap_generate(mixin.generate)
    mixin._prepare_cache_for_generation = _wrap_prepare(mixin._prepare_cache_for_generation)
    criteria.__call__ = _wrap_criteria(criteria.__call__)


def _open():
    """The calls of `generate` that this thread is in, the innermost last."""
    if not hasattr(_here, "open"):
        _here.open = []
    return _here.open


def _wrap_generate(generate):
    @functools.wraps(generate)
    def generating(self, *args, **kwargs):
        if not guard.on:
            return generate(self, *args, **kwargs)
        generation = _Generation()
        _open().append(generation)
        try:
            return generate(self, *args, **kwargs)
        finally:
            _open().pop()
            guard(generation.end)

    return generating


def _wrap_prepare(prepare):
    @functools.wraps(prepare)
    def preparing(self, *args, **kwargs):
        result = prepare(self, *args, **kwargs)
        if guard.on and _open():
            guard(_open()[-1].prepared, list(args) + list(kwargs.values()))
        return result

    return preparing


def _wrap_criteria(ask):
    @functools.wraps(ask)
    def asking(self, input_ids, *args, **kwargs):
        done = ask(self, input_ids, *args, **kwargs)
        if guard.on and _open():
            guard(_open()[-1].token, input_ids, done)
        return done

    return asking


class _Generation:
    """One call of `generate`."""

    def __init__(self):
        self.cache = None  # a weak reference to the KV cache
        self.prompts = ()  # tokens of each prompt, without padding
        self.beams = 1  # of each prompt
        self.length = 0  # tokens of each row of input_ids at the last call of `token`
        self.record = None  # the _Record of the cache; False if the cache is of an unknown kind
        self.rows = []  # a name for each sequence
        self.ended = set()  # names of sequences that have their last token

    def prepared(self, arguments):
        """The cache has been made or passed in. Reads the prompts' lengths from the attention mask."""
        for argument in arguments:
            self.beams = max(self.beams, getattr(argument, "num_beams", None) or 1)
            if isinstance(argument, dict) and argument.get("past_key_values") is not None:
                self.cache = weakref.ref(argument["past_key_values"])
                mask = argument.get("attention_mask")
                if getattr(mask, "ndim", 0) == 2:
                    self.prompts = [int(n) for n in mask.sum(-1).tolist()]

    def token(self, input_ids, done):
        """Every row of input_ids has one token more. The cache has the tokens before that one."""
        cache = self.cache and self.cache()
        if cache is None or self.record is False:
            return
        asked, length = input_ids.shape
        if self.record and self.beams > 1 and self.record.expanded(cache):
            self.record.kv.end()
            self.record, self.rows = None, []
        if self.record is None:
            self.record = _record(cache, self.beams) or False
            if not self.record:
                return
            self._begin(asked, length - 1)
        else:
            self.record.grown(cache)
            self.record.kv.step(length - self.length)
        self.length = length
        if self.beams == 1 and getattr(done, "ndim", 0) == 1 and done.shape[0] == len(self.rows):
            for name, ended in zip(self.rows, done.tolist()):
                if ended and name not in self.ended:
                    self.ended.add(name)
                    self.record.kv.finish(name)

    def _begin(self, asked, length):
        # With beams, input_ids has a row for each candidate, of which there are more than beams. The cache
        # has a row for each beam.
        rows = self.record.rows
        if asked != rows and (self.beams == 1 or asked % max(rows // self.beams, 1)):
            raise Unexpected("%d sequences in a cache of %d rows" % (asked, rows))
        prompts = list(self.prompts) or [length]
        if rows % len(prompts):
            raise Unexpected("%d sequences of %d prompts" % (rows, len(prompts)))
        for row in range(rows):
            prompt, name = prompts[row * len(prompts) // rows], (id(self), row)
            padding = min(max(length - prompt, 0), max(self.record.slots - prompt, 0))
            self.record.kv.reserve(name, slots=self.record.slots, prompt=prompt, padding=padding)
            self.record.kv.append(name, min(prompt, self.record.slots))
            self.rows.append(name)

    def end(self):
        if not self.record:
            return
        for name in self.rows:
            if self.record.static:
                self.record.kv.free(name)
            elif name not in self.ended:
                self.record.kv.finish(name)
        if not self.record.static:
            self.record.over = True


class _Record:
    """What has been recorded of a cache."""

    def __init__(self, static, rows, slots, token_bytes, device, beams):
        self.static, self.rows, self.slots, self.beams = static, rows, slots, beams
        self.over = False  # the generation has ended: another one with this cache gets a new record
        engine = "transformers %s" % ("StaticCache" if static else "DynamicCache")
        self.kv = kv.Cache(rows * slots if static else 0, token_bytes, engine=engine, device=device, beams=beams)

    def expanded(self, cache):
        """Whether the number of rows has changed: a prompt may be computed once and then copied for its beams."""
        return cache.layers[0].keys.shape[0] != self.rows

    def grown(self, cache):
        if not self.static:
            slots = cache.layers[0].keys.shape[-2]
            if slots < self.slots:
                raise Unexpected("a cache that shrinks")
            if slots > self.slots:
                self.kv.reserve_all(slots - self.slots)
            self.slots = slots


def _record(cache, beams):
    """The record for the cache as it is now; None if its kind is unknown."""
    layers = getattr(cache, "layers", None)
    kinds = {type(layer).__name__ for layer in layers or ()}
    if kinds not in ({"StaticLayer"}, {"DynamicLayer"}):
        guard.report("a cache of %s is not recorded" % (" and ".join(sorted(kinds)) or type(cache).__name__))
        return None
    tensors = [t for layer in layers for t in (layer.keys, layer.values)]
    rows, _, slots, _ = tensors[0].shape
    if any(t.shape[0] != rows or t.shape[-2] != slots for t in tensors):
        raise Unexpected("layers of different shapes")
    token_bytes = sum(t.shape[1] * t.shape[-1] * t.element_size() for t in tensors)
    static = kinds == {"StaticLayer"}
    known = _records.get(id(cache))
    if known is not None and not known.over and (known.static, known.rows, known.slots, known.beams) == (static, rows, slots, beams):
        return known
    if known is not None:
        known.kv.end()
    record = _records[id(cache)] = _Record(static, rows, slots, token_bytes, tensors[0].device.index or 0, beams)
    if known is None:
        weakref.finalize(cache, _gone, id(cache)).atexit = False
    return record


def _gone(key):
    record = _records.pop(key, None)
    if record is not None:
        record.kv.end()
