"""Adapters that make the marks of memprof.kv for transformers' caches, without changes to the job."""


def wait(wait_for):
    """Has each adapter installed once the module it is about has been imported."""
    wait_for("transformers.generation.utils", _on_generate, "caches are not told")
    wait_for("transformers.generation.continuous_batching.cache", _on_paged, "its cache is not told")
    wait_for("transformers.generation.continuous_batching.input_outputs", _on_passes, "its passes are told later")


def _on_generate(module):
    from memprof._kv import generate

    generate.install(module)


def _on_paged(module):
    from memprof._kv import paged

    paged.install(module)


def _on_passes(module):
    from memprof._kv import paged

    paged.install_passes(module)
