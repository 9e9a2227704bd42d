"""Adapters that mark transformers' KV caches by memprof.kv, without changes to the job."""


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
