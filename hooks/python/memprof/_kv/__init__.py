"""Adapters that mark transformers' KV caches by memprof.kv, without changes to the job.

generate.py reads the shapes of caches where `generate` asks whether to stop, which is outside of what may be compiled; with beams each
row of the cache is a sequence, since each has its own copy of the prompt. paged.py compares block tables with those it recorded last,
since the calls that change them differ between versions. An error in an adapter switches it off and is a problem of the recording.
"""


def wait(wait_for):
    """Installs each adapter once the module it wraps has been imported."""
    wait_for("transformers.generation.utils", _on_generate, "its KV caches are not recorded")
    wait_for("transformers.generation.continuous_batching.cache", _on_paged, "its KV cache is not recorded")
    wait_for("transformers.generation.continuous_batching.input_outputs", _on_passes, "its forward passes are recorded later")


def _on_generate(module):
    from memprof._kv import generate

    generate.install(module)


def _on_paged(module):
    from memprof._kv import paged

    paged.install(module)


def _on_passes(module):
    from memprof._kv import paged

    paged.install_passes(module)
