"""Tags of vLLM's sleep mode: what its cumem allocator allocates gets the same tag in the recording.

vLLM's allocator is the source of a memory pool and keeps its tags in Python. So each of its pools is entered inside
a region of the pool's tag. The allocator itself unmaps and maps the memory; memprof.pause() leaves it alone.
"""

import functools
from contextlib import contextmanager

from memprof import _hook


def install(module):
    """Wraps `CuMemAllocator` of the module vllm.device_allocator.cumem."""
    allocator = module.CuMemAllocator
    pool, sleep = allocator.use_memory_pool, allocator.sleep

    @functools.wraps(pool)
    @contextmanager
    def use_memory_pool(self, tag=None, *rest, **named):
        from memprof._tags.regions import region

        # The allocator says itself whether the content survives, so the region has no backup.
        with region(getattr(self, "default_tag", "default") if tag is None else tag), pool(self, tag, *rest, **named) as value:
            yield value

    @functools.wraps(sleep)
    def copying(self, offload_tags=None, *rest, **named):
        _note_copies(self, offload_tags)
        return sleep(self, offload_tags, *rest, **named)

    allocator.use_memory_pool, allocator.sleep = use_memory_pool, copying
    if hasattr(allocator, "discard"):  # from August 2026 on
        allocator.discard = _discarding(allocator.discard)


def _discarding(discard):
    @functools.wraps(discard)
    def discarding(self, tags, *rest, **named):
        _note_discard(self, tags)
        return discard(self, tags, *rest, **named)

    return discarding


def _listed(tags):
    return (tags,) if isinstance(tags, str) else tuple(tags)


def _note_copies_of(tags, copied):
    for tag in tags:
        _hook.library().memprof_tag_offloaded(_hook.encoded(tag), int(tag in copied))


@_hook.harmless
def _note_copies(allocator, offload):
    """Says which tags the next pauses and resumes copy to the host and back: level 1 the weights, level 2 none."""
    copied = _listed(allocator.default_tag if offload is None else offload)
    _note_copies_of({data.tag for data in allocator.pointer_to_data.values()}, copied)


@_hook.harmless
def _note_discard(allocator, tags):
    """Says that what is discarded is not copied, except where a copy exists: vLLM refuses to discard that."""
    backed = {data.tag for data in allocator.pointer_to_data.values() if getattr(data, "cpu_backup_tensor", None) is not None}
    _note_copies_of(set(_listed(tags)) - backed, ())
