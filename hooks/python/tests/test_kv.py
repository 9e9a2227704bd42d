"""Marks of KV caches, and the adapters that make them, in processes of their own."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import hooked  # noqa: E402
import pretend  # noqa: E402
import pretend_transformers  # noqa: E402
import spool  # noqa: E402

# Marks in words: what, the sequence, and the numbers after it.
SAID = """
import torch, memprof
def said():
    import ctypes
    out = []
    for name, *a in calls:
        if not name.startswith("kv_"): continue
        if name == "kv_append_many":
            out += ["append %d %d" % (a[2][i], a[3][i]) for i in range(a[1])]
        elif name == "kv_cache":
            out.append("cache slots=%d token=%d %s" % (a[1], a[2], a[3].decode().replace("\\t", " ")))
        else:
            out.append(" ".join([name[3:]] + [str(n) for n in a[1:]]))
    del calls[:]
    return "; ".join(out)
def problems():
    return [c[1].decode() for c in calls if c[0] == "problem"]
"""

GENERATE = SAID + """
from transformers.generation.utils import GenerationMixin
from transformers.cache_utils import DynamicCache, StaticCache, DynamicSlidingWindowLayer
from transformers.tensors import Mask
del calls[:]
"""

PAGED = SAID + """
import gc
from transformers.generation.continuous_batching.cache import PagedAttentionCache, SlidingAttentionCacheAllocator
del calls[:]
def run(cache, *requests):
    for request, past, query in requests:
        cache.allocate(request, past + query)
        cache.extend_read_and_write_indices(request, past, query, [], [])
from transformers.generation.continuous_batching.input_outputs import ContinuousBatchingIOs
def run_pass(cache, *requests):
    for request, past, query in requests:
        cache.allocate(request, past + query)
    ContinuousBatchingIOs(cache).prepare_batch_tensors(requests)
"""


class AdapterTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        pretend.write_torch(self.folder)
        pretend_transformers.write_transformers(self.folder)

    def check(self, start, script, expected, level="modules"):
        """Runs the script; `expected` is what it prints, line by line."""
        path = os.pathsep.join([os.path.dirname(HERE), self.folder])
        env = dict(os.environ, PYTHONPATH=path, MEMPROF_SPOOL=self.folder, MEMPROF_ATTRIBUTION=level)
        text = textwrap.dedent(pretend.HOOK) + start + textwrap.dedent(script)
        done = subprocess.run([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.stdout.splitlines(), textwrap.dedent(expected).strip("\n").splitlines())

    def test_dynamic_cache(self):
        # Two prompts of 5 and 3 tokens, the second padded; 3 and 2 tokens are made.
        self.check(
            GENERATE,
            """
            mask = Mask([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
            print(GenerationMixin().generate(2, 5, [3, 2], attention_mask=mask))
            print(said())
            """,
            """
            8
            cache slots=0 token=96 layout=contiguous engine=transformers DynamicCache; reserve 0 0 5 5; append 0 5; reserve 1 2 5 3; append 1 3; \
reserve -1 0 1 0; append -1 1; append 1 0; reserve -1 0 1 0; append -1 1; append 0 0; end
            """,
        )

    def test_static_cache(self):
        self.check(
            GENERATE,
            """
            mask = Mask([[1, 1, 1], [0, 1, 1]])
            GenerationMixin().generate(2, 3, [1, 2], attention_mask=mask, cache=StaticCache, max_cache_length=8)
            print(said())
            """,
            """
            cache slots=16 token=96 layout=contiguous engine=transformers StaticCache; reserve 0 0 8 3; append 0 3; reserve 1 1 8 2; append 1 2; \
append 0 0; append -1 1; append 1 0; end
            """,
        )

    def test_beams_are_sequences_in_rows_of_their_own(self):
        # Two prompts of 3 and 2 tokens, two beams each; asked about are 8 candidates, or 4 beams.
        for search in ("vectorised", "scored"):
            self.check(
                GENERATE,
                """
                mask = Mask([[1, 1, 1], [0, 1, 1]])
                GenerationMixin().generate(2, 3, [2, 2], attention_mask=mask, num_beams=2, search="%s")
                print(said())
                print(problems())
                """
                % search,
                """
                cache slots=0 token=96 layout=contiguous engine=transformers DynamicCache beams=2; \
reserve 0 0 3 3; append 0 3; reserve 1 0 3 3; append 1 3; reserve 2 1 3 2; append 2 2; reserve 3 1 3 2; append 3 2; \
reserve -1 0 1 0; append -1 1; end
                []
                """,
            )

    def test_sixteen_prompts_of_two_beams(self):
        # 64 candidates in a cache of 32 rows: once taken for an unknown layout.
        self.check(
            GENERATE,
            """
            GenerationMixin().generate(16, 5, [1] * 16, num_beams=2)
            text = said()
            print(text.count("reserve"), text.count("append"), text.startswith("cache slots=0 token=96 layout=contiguous engine=transformers DynamicCache beams=2"))
            print(problems())
            """,
            """
            32 32 True
            []
            """,
        )

    def test_beams_of_a_static_cache(self):
        self.check(
            GENERATE,
            """
            GenerationMixin().generate(1, 2, [2], cache=StaticCache, max_cache_length=8, num_beams=2)
            print(said())
            """,
            """
            cache slots=16 token=96 layout=contiguous engine=transformers StaticCache beams=2; \
reserve 0 0 8 2; append 0 2; reserve 1 0 8 2; append 1 2; append -1 1; end
            """,
        )

    def test_prompts_that_become_beams_after_their_first_pass(self):
        # The cache has a row for the prompt when it is first asked, and then two: if it is reordered in between.
        self.check(
            GENERATE,
            """
            GenerationMixin().generate(1, 2, [2], num_beams=2, search="prefill_first")
            print(said())
            print(problems())
            """,
            """
            cache slots=0 token=96 layout=contiguous engine=transformers DynamicCache beams=2; reserve 0 0 2 2; append 0 2; end; \
cache slots=0 token=96 layout=contiguous engine=transformers DynamicCache beams=2; \
reserve 0 0 3 3; append 0 3; reserve 1 0 3 3; append 1 3; end
            []
            """,
        )

    def test_sequences_that_are_returned_without_beams(self):
        self.check(
            GENERATE,
            """
            GenerationMixin().generate(1, 2, [1], num_return_sequences=2)
            print(said())
            """,
            """
            cache slots=0 token=96 layout=contiguous engine=transformers DynamicCache; \
reserve 0 0 2 2; append 0 2; reserve 1 0 2 2; append 1 2; append 0 0; append 1 0; end
            """,
        )

    def test_rows_that_are_no_beams_are_unexpected(self):
        self.check(
            GENERATE,
            """
            class Model(GenerationMixin):
                def vectorised(self, rows, batch, *rest):
                    return super().vectorised(rows, batch - 1, *rest)
            Model().generate(3, 2, [1], num_beams=2)
            print(problems())
            """,
            """
            ["KV cache of transformers' generate: Unexpected: 8 sequences in a cache of 6 rows; from here on it is not recorded"]
            """,
        )

    def test_a_static_cache_that_is_used_again_is_one_cache(self):
        self.check(
            GENERATE,
            """
            kept = StaticCache(8)
            class Model(GenerationMixin):
                def _prepare_cache_for_generation(self, config, model_kwargs, *rest):
                    super()._prepare_cache_for_generation(config, model_kwargs, *rest)
                    model_kwargs["past_key_values"] = kept
            class Kept:
                def __new__(cls): return kept
            for _ in range(2):
                GenerationMixin().generate(1, 2, [1], cache=Kept)
                print(said())
            del kept
            """,
            """
            cache slots=8 token=96 layout=contiguous engine=transformers StaticCache; reserve 0 0 8 2; append 0 2; append 0 0; free 0 0
            reserve 1 0 8 2; append 1 2; append 1 0; free 1 0
            """,
        )

    def test_an_exception_passes_through_and_ends_the_sequences(self):
        self.check(
            GENERATE,
            """
            try:
                GenerationMixin().generate(1, 2, [9], cache=StaticCache, fail=5)
            except MemoryError as error:
                print(error)
            print(said().split("; ")[2:])
            GenerationMixin().generate(1, 2, [1])
            print(said())
            """,
            """
            out of memory
            ['append 0 2', 'append -1 1', 'free 0 0', 'end']
            cache slots=0 token=96 layout=contiguous engine=transformers DynamicCache; reserve 0 0 2 2; append 0 2; append 0 0; end
            """,
        )

    def test_other_caches_are_named_and_left(self):
        self.check(
            GENERATE,
            """
            class Sliding(DynamicCache):
                def __init__(self): super().__init__(kind=DynamicSlidingWindowLayer)
            for _ in range(2):
                print(GenerationMixin().generate(1, 2, [2], cache=Sliding))
            print(problems(), said())
            """,
            """
            4
            4
            ["KV cache of transformers' generate: a cache of DynamicSlidingWindowLayer is not recorded"]\x20
            """,
        )

    def test_unexpected_turns_the_adapter_off(self):
        self.check(
            GENERATE,
            """
            class Odd(DynamicCache):
                def __init__(self):
                    super().__init__()
                    self.layers[1].update(1, 7)
            print(GenerationMixin().generate(1, 2, [2], cache=Odd))
            print(GenerationMixin().generate(1, 2, [2]))
            print(problems(), said())
            """,
            """
            4
            4
            ["KV cache of transformers' generate: Unexpected: layers of different shapes; from here on it is not recorded"]\x20
            """,
        )

    def test_no_attribution_leaves_transformers_alone(self):
        self.check(
            GENERATE,
            """
            print(GenerationMixin().generate(1, 2, [2]), said(), GenerationMixin.generate.__qualname__)
            """,
            "4  GenerationMixin.generate",
            level="none",
        )

    def test_paged_cache(self):
        # Blocks of 4; a prompt of 6 tokens and one of 9, then both decode.
        self.check(
            PAGED,
            """
            cache = PagedAttentionCache(8, 4)
            run(cache, ("a", 0, 6), ("b", 0, 9))
            run(cache, ("a", 6, 1), ("b", 9, 1))
            run(cache, ("a", 7, 1), ("b", 10, 1))
            cache.free_blocks("a")
            run(cache, ("b", 11, 1))
            cache.free_all_requests()
            del cache
            gc.collect()
            for word in said().split("; "): print(word)
            """,
            """
            cache slots=32 token=64 layout=paged block=4 engine=transformers continuous batching
            reserve 0 0 8 0
            reserve 1 2 12 0
            append 0 6
            append 1 9
            append -1 1
            append -1 1
            free 0 0
            append -1 1
            free 1 0
            end
            """,
        )

    def test_chunks_of_a_prompt_among_those_that_decode(self):
        self.check(
            PAGED,
            """
            cache = PagedAttentionCache(8, 4)
            run(cache, ("a", 0, 3))
            run(cache, ("a", 3, 1), ("b", 0, 4))
            run(cache, ("a", 4, 1), ("b", 4, 3))
            run(cache, ("b", 7, 1))  # the other one waits
            cache.free_blocks("b")
            print(said().split("; ", 1)[1])
            """,
            """
            reserve 0 0 4 0; append 0 3; reserve 1 1 4 0; append -1 1; append 1 4; reserve 0 2 4 0; reserve 1 3 4 0; append -1 1; append 1 2; \
append 1 1; free 1 0
            """,
        )

    def test_prefixes_are_shared_kept_and_dropped(self):
        for layout in "", ", sectors=True":
            with self.subTest(layout):
                self.prefixes(layout)

    def prefixes(self, layout):
        self.check(
            PAGED,
            """
            cache = PagedAttentionCache(4, 2LAYOUT)
            prompt = [5, 6, 7, 8, 9]
            run_pass(cache, ("a", 0, 5))
            cache.complete("a", prompt)
            cache.search_prefix_match("b", prompt[:4] + [1])
            run_pass(cache, ("b", 4, 1))
            cache.free_blocks("a")
            cache.free_blocks("b")
            run_pass(cache, ("c", 0, 8))
            cache.free_blocks("c")
            for word in said().split("; "): print(word)
            """.replace("LAYOUT", layout),
            """
            cache slots=8 token=64 layout=paged block=2 engine=transformers continuous batching
            reserve 0 0 6 0
            append 0 5
            share 1 0 4 -1
            reserve 1 3 2 0
            append 1 5
            free 0 4
            free 1 4
            reserve 2 2 4 0
            reserve 2 1 2 0
            reserve 2 0 2 0
            append 2 8
            free 2 0
            """,
        )

    def test_equal_blocks_become_one(self):
        self.check(
            PAGED,
            """
            cache = PagedAttentionCache(8, 2)
            run(cache, ("a", 0, 3), ("b", 0, 3))
            cache.complete("a", [1, 2, 3])
            cache.complete("b", [1, 2, 3])
            run(cache, ("a", 3, 1), ("b", 3, 1))
            cache.free_blocks("b")
            print(said().split("; ", 1)[1])
            """,
            """
            reserve 0 0 4 0; reserve 1 2 4 0; append 0 3; append 1 3; share 1 0 2 0; append -1 1; free 1 2
            """,
        )

    def test_groups_of_layers_are_unexpected(self):
        self.check(
            PAGED,
            """
            cache = PagedAttentionCache(8, 2, kind=SlidingAttentionCacheAllocator)
            run(cache, ("a", 0, 3))
            print(problems(), said())
            """,
            """
            ["KV cache of transformers' continuous batching: Unexpected: layers in groups (SlidingAttentionCacheAllocator); \
from here on it is not recorded"]\x20
            """,
        )


@unittest.skipUnless(os.path.exists(hooked.LIBRARY) and os.path.exists(hooked.SIMULATION), "the hook is not built: make -C hooks dist")
class MarksTest(unittest.TestCase):
    """The marks through the real hook, on the simulated GPU."""

    def spooled(self, script):
        with tempfile.TemporaryDirectory() as folder:
            links, events = os.path.join(folder, "sim"), os.path.join(folder, "spool")
            os.mkdir(links)
            os.mkdir(events)
            os.symlink(hooked.SIMULATION, os.path.join(links, "libcuda.so.1"))
            env = dict(os.environ, PYTHONPATH=os.path.dirname(HERE), LD_PRELOAD=hooked.LIBRARY, LD_LIBRARY_PATH=links, MEMPROF_SPOOL=events)
            env["MEMPROF_OPTIONS"] = "headroom=0,preset=compact,handle=2097152"
            text = hooked.START + textwrap.dedent(script)
            done = subprocess.run([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual((done.stderr, done.stdout), ("", ""))
            return [
                (e["kind"][3:], e["stream"], e["addr"] - (e["addr"] >> 63 << 64), e["requested"], e["provided"], e["context"].replace("\t", " "))
                for e in spool.read(events)
                if e["kind"].startswith("kv_")
            ]

    def test_marks_reach_the_spool(self):
        events = self.spooled(
            """
            early = memprof.kv.Cache(slots=64, token_bytes=8)
            early.reserve("x", slots=3)
            assert not early
            take(1)
            early.append("x")
            cache = memprof.kv.Cache(slots=64, token_bytes=8, block=4, null=1, name="a\tb", engine="mine")
            assert cache
            cache.reserve("x", blocks=[1, 2, 5], prompt=9)
            cache.append("x", 9)
            cache.share("y", blocks=[1, 2])
            cache.append_many({"y": 8, "x": 1})
            cache.step()
            cache.share("x", [7], position=2)
            cache.finish("y")
            cache.free("y", kept=8)
            cache.drop([1])
            cache.reserve("y", blocks=[9])
            cache.end()
            cache.append("x")
            plain = memprof.kv.Cache(slots=0, token_bytes=8, device=0)
            plain.reserve(0, slots=6, padding=2)
            plain.reserve_all(1)
            """
        )
        self.assertEqual(
            events,
            [
                ("cache", 1, 0, 64, 8, "layout=paged block=4 null=1 engine=mine name=a b"),
                ("reserve", 1, 0, 1, 8, "prompt=9"),
                ("reserve", 1, 0, 5, 4, "prompt=9"),
                ("append", 1, 0, 9, 0, ""),
                ("share", 1, 1, 1, 8, ""),
                ("append", 1, 1, 8, 0, ""),
                ("append", 1, 0, 1, 0, ""),
                ("append", 1, -1, 1, 0, ""),
                ("share", 1, 0, 7, 4, "position=2"),
                ("append", 1, 1, 0, 0, ""),
                ("free", 1, 1, 8, 0, ""),
                ("free", 1, -1, 1, 4, ""),
                ("reserve", 1, 2, 9, 4, ""),  # the name is a new sequence's
                ("free", 1, -1, 0, 0, ""),
                ("cache", 2, 0, 0, 8, "layout=contiguous"),
                ("reserve", 2, 0, 2, 6, ""),
                ("reserve", 2, -1, 0, 1, ""),
            ],
        )


if __name__ == "__main__":
    unittest.main()
