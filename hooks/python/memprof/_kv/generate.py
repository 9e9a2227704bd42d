"""What transformers' caches hold in `generate`, told at every token, without any marks.

A batch of prompts has one tensor of keys and one of values a layer, with a row for each
sequence. A StaticCache has its full length from the start, a DynamicCache grows with every
token. Rows end one by one, and keep their slots until the last one has: what a row has left of
its padding and its end is what is lost.

Beam search keeps num_beams rows for each prompt, and every row has its own copy of the prompt's
keys and values: each beam is a sequence. A step that goes on with other beams copies rows over
each other and changes no slot. Beams of a prompt end together, when all prompts have ended.

`generate` asks its stopping criteria after every token, in Python, with which sequences are to
stop as the answer. That is where we look at the cache: the caches' own methods may be compiled
or captured, and stay as they are. Nothing here keeps a cache alive.
"""

import functools
import threading
import weakref

from memprof import kv
from memprof._kv.guard import Guard, Surprise

_here = threading.local()
_records = {}  # id of a cache that was told: its record
guard = Guard("transformers' generate")


def install(utils):
    """Called when transformers.generation.utils has been imported."""
    mixin, criteria = utils.GenerationMixin, utils.StoppingCriteriaList
    mixin.generate = _wrap_generate(mixin.generate)
    mixin._prepare_cache_for_generation = _wrap_prepare(mixin._prepare_cache_for_generation)
    criteria.__call__ = _wrap_criteria(criteria.__call__)


def _open():
    """The generations of this thread, the innermost last."""
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
        self.cache = None  # a weak reference
        self.prompts = ()  # tokens of each prompt, without padding
        self.beams = 1  # of each prompt
        self.length = 0  # of input_ids at the last token
        self.record = None
        self.rows = []  # names of the sequences that are told
        self.ended = set()

    def prepared(self, arguments):
        """The cache is made, or was handed over, and the prompts are known."""
        for argument in arguments:
            self.beams = max(self.beams, getattr(argument, "num_beams", None) or 1)
            if isinstance(argument, dict) and argument.get("past_key_values") is not None:
                self.cache = weakref.ref(argument["past_key_values"])
                mask = argument.get("attention_mask")
                if getattr(mask, "ndim", 0) == 2:
                    self.prompts = [int(n) for n in mask.sum(-1).tolist()]

    def token(self, input_ids, done):
        """Every row has been told a token more; the cache has those before it."""
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
        # Of beams it is asked about the candidates to go on with, of which there are more than
        # beams; the rows of the cache are the beams.
        rows = self.record.rows
        if asked != rows and (self.beams == 1 or asked % max(rows // self.beams, 1)):
            raise Surprise("%d sequences in a cache of %d rows" % (asked, rows))
        prompts = list(self.prompts) or [length]
        if rows % len(prompts):
            raise Surprise("%d sequences of %d prompts" % (rows, len(prompts)))
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
    """What was told of a cache."""

    def __init__(self, static, rows, slots, token_bytes, device, beams):
        self.static, self.rows, self.slots, self.beams = static, rows, slots, beams
        self.over = False  # a further generation with the same cache is told as another
        engine = "transformers %s" % ("StaticCache" if static else "DynamicCache")
        self.kv = kv.Cache(rows * slots if static else 0, token_bytes, engine=engine, device=device, beams=beams)

    def expanded(self, cache):
        """Whether the cache has other rows: a prompt's first pass may come before its beams."""
        return cache.layers[0].keys.shape[0] != self.rows

    def grown(self, cache):
        if not self.static:
            slots = cache.layers[0].keys.shape[-2]
            if slots < self.slots:
                raise Surprise("a cache that shrinks")
            if slots > self.slots:
                self.kv.reserve_all(slots - self.slots)
            self.slots = slots


def _record(cache, beams):
    """The record of the cache as it is now; None if it is of a kind that is not told."""
    layers = getattr(cache, "layers", None)
    kinds = {type(layer).__name__ for layer in layers or ()}
    if kinds not in ({"StaticLayer"}, {"DynamicLayer"}):
        guard.tell("a cache of %s is not told" % (" and ".join(sorted(kinds)) or type(cache).__name__))
        return None
    tensors = [t for layer in layers for t in (layer.keys, layer.values)]
    rows, _, slots, _ = tensors[0].shape
    if any(t.shape[0] != rows or t.shape[-2] != slots for t in tensors):
        raise Surprise("layers of different shapes")
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
