"""Graph memory through the real hook, on the simulated GPU, under the made-up torch of pretend_graphs.py."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import pretend_graphs  # noqa: E402

HOOKS = os.path.dirname(os.path.dirname(HERE))
LIBRARY = os.path.join(HOOKS, "dist", "libmemprof.so")
SIMULATION = os.path.join(HOOKS, "dist", "sim", "libcuda.so.1")


@unittest.skipUnless(os.path.exists(LIBRARY) and os.path.exists(SIMULATION), "the hook is not built: make -C hooks dist")
class GraphMemoryTest(unittest.TestCase):
    def run_script(self, script, hooked=True):
        with tempfile.TemporaryDirectory() as folder:
            env = dict(os.environ, PYTHONPATH=os.path.join(HOOKS, "python"))
            env.pop("MEMPROF_SPOOL", None)
            if hooked:
                links = os.path.join(folder, "sim")
                os.mkdir(links)
                os.symlink(SIMULATION, os.path.join(links, "libcuda.so.1"))
                env.update(LD_PRELOAD=LIBRARY, LD_LIBRARY_PATH=links, MEMPROF_SPOOL=folder, MEMPROF_OPTIONS="headroom=0,preset=compact,handle=2097152")
            text = "HOOKED = %r\n" % hooked + pretend_graphs.TORCH + textwrap.dedent(script)
            done = subprocess.run([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.stderr, "")
            return done.stdout.split()

    ORDERS = """
        for order in ((1, 5, 3), (5, 3, 1), (1, 3, 5)):
            pool = memprof.GraphMemory()
            made = [capture(pool, "bs%d" % size, 2 * size, size) for size in order]
            print(pool.physical // M, pool.usage()["ranges"], [shape.extent // M for graph, shape in made])
            for graph, shape in made: shape.reset()
            print(pool.physical, pool.usage()["ranges"])
            pool.close()
        """

    def test_as_large_as_the_largest_in_any_order(self):
        out = self.run_script(self.ORDERS)
        self.assertEqual(" ".join(out), "10 3 [2, 10, 6] 0 0 10 3 [10, 6, 2] 0 0 10 3 [2, 6, 10] 0 0")

    def test_what_lives_in_a_range_is_named(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory()
            graph = torch.cuda.CUDAGraph()
            try:
                with pool.shape("bs8"):
                    with torch.cuda.graph(graph):
                        bytes_of(4)
                        logits = bytes_of(1)
            except memprof.GraphMemoryError as error:
                print(str(error).startswith("shape bs8 ends with 1 live"), len(error.blocks), error.blocks[0][1] // M, "uint8 [1048576]" in str(error), error.blocks[0][0] == logits.data_ptr())
            print(list(pool.shapes), pool.usage()["ranges"])
            graph.reset()
            del logits
            print(hook.memprof_empty_cache(0) and 0)
            kept = capture(pool, "bs8", 1)
            print(pool.usage()["ranges"])
            """,
        )
        self.assertEqual(" ".join(out), "True 1 1 True True [] 1 0 1")

    def test_outputs_are_outside(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory()
            kept = pool.persistent(logits=((64, 4), uint8))
            graph, declared = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            with pool.shape("free") as shape:
                with torch.cuda.graph(graph):
                    hidden, more = shape.output((bytes_of(1).fill(7), {"x": bytes_of(2).fill(8), "n": 3}))
            print(hidden.read()[0], more["x"].read()[-1], more["n"])
            with pool.shape("declared", outputs=kept) as shape:
                with torch.cuda.graph(declared):
                    logits = shape.output(torch.empty(16, 4, dtype=uint8).fill(5))
                    try:
                        shape.output(bytes_of(1))
                    except ValueError as error:
                        print("more tensors than the 1 in" in str(error))
            print(logits.data_ptr() == kept.logits.data_ptr(), logits.shape[0], kept.logits.read()[63:65])
            with pool.shape("other", outputs=[kept.logits]) as shape:
                with torch.cuda.graph(torch.cuda.CUDAGraph()):
                    try:
                        shape.output(torch.empty(65, 4, dtype=uint8))
                    except ValueError as error:
                        print("does not fit" in str(error))
                try:
                    shape.output(bytes_of(1))
                except memprof.GraphMemoryError as error:
                    print("outside of a capture" in str(error))
            # What another shape does in its range does not reach them.
            graph2 = torch.cuda.CUDAGraph()
            with pool.shape("next"):
                with torch.cuda.graph(graph2):
                    bytes_of(9).fill(1)
            print(hidden.read()[0], more["x"].read()[-1], kept.logits.read()[63:65])
            """,
        )
        self.assertEqual(" ".join(out), "7 8 3 True True 16 [5, 0] True True 7 8 [5, 0]")

    def test_workspaces_stay_out_of_the_range(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory()
            graphs = []
            for name in ("a", "b"):
                graphs.append(torch.cuda.CUDAGraph())
                with pool.shape(name) as shape:
                    with torch.cuda.graph(graphs[-1]):
                        mm(None, None)
                        bytes_of(1)
                print(shape.extent // M)
                workspaces.clear()
                workspace = None
            """,
        )
        self.assertEqual(out, ["2", "2"])

    def test_piecewise_captures_share_a_range(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory()
            first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            with pool.shape("pieces") as shape:
                with torch.cuda.graph(first):
                    between = bytes_of(0.5).fill(3)
                with torch.cuda.graph(second):
                    other = bytes_of(0.5).fill(4)
                    print(between.read()[0], other.data_ptr() != between.data_ptr())
                del between, other
            print(first.pool() == second.pool() == shape.pool, shape.extent // M)
            pool.release("pieces")
            first.reset()
            print(pool.usage()["ranges"])
            second.reset()
            print(pool.usage()["ranges"], list(pool.shapes))
            """,
        )
        self.assertEqual(" ".join(out), "3 True True 2 1 0 []")

    def test_a_shape_ends_with_its_graphs(self):
        # However they end: reset, reset of one of two, dropped, and captured anew.
        out = self.run_script(
            """
            pool = memprof.GraphMemory()
            held = free()
            small, _ = capture(pool, "small", 1)
            large, shape = capture(pool, "large", 30)
            took = held - free()
            large.reset()
            print(took - (held - free()), list(pool.shapes), shape.released)
            large, _ = capture(pool, "large", 30)
            del large, _
            print(list(pool.shapes), pool.usage()["ranges"])
            with pool.shape("pieces") as shape:
                first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
                with torch.cuda.graph(first): bytes_of(1)
                first.reset()
                with torch.cuda.graph(first): bytes_of(1)
                with torch.cuda.graph(second): bytes_of(1)
            first.reset()
            print(list(pool.shapes))
            second.reset()
            print(list(pool.shapes))
            with pool.shape("never kept"):
                with torch.cuda.graph(torch.cuda.CUDAGraph()): bytes_of(1)
            with pool.shape("nothing"): pass
            print(list(pool.shapes), pool.usage()["ranges"])
            """,
        )
        self.assertEqual(" ".join(out), "28 ['small'] True ['small'] 1 ['small', 'pieces'] ['small'] ['small', 'nothing'] 2")

    def test_a_graph_ends_within_a_capture(self):
        out = self.run_script(
            """
            pool, graph = memprof.GraphMemory(), torch.cuda.CUDAGraph()
            large, _ = capture(pool, "large", 30)
            held = free()
            with pool.shape("small"):
                with torch.cuda.graph(graph):
                    large.reset()
                    bytes_of(1)
            print(list(pool.shapes), free() - held >= 28)
            """,
        )
        self.assertEqual(" ".join(out), "['small'] True")

    def test_closed_memory_goes_with_the_last_graph(self):
        out = self.run_script(
            """
            workspaces[capture_stream] = None
            pool = memprof.GraphMemory()
            memprof._graphs.pools.make_workspaces(torch, 0)
            held = free()
            (a, _), (b, _) = capture(pool, "a", 30), capture(pool, "b", 4)
            pool.close()
            a.reset()
            print(held - free() > 0)
            b.reset()
            print(held - free())
            """,
        )
        self.assertEqual(out, ["True", "0"])

    def test_outputs_stay_as_long_as_their_graph(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory()
            graph = torch.cuda.CUDAGraph()
            with pool.shape("a") as shape:
                with torch.cuda.graph(graph): out = shape.output(bytes_of(8))
            written = out.data_ptr()
            del out
            pool.release("a")
            def elsewhere():
                with stream(memprof._graphs.shape._side_stream(torch, 0)): return bytes_of(8)
            print(elsewhere().data_ptr() == written)
            graph.reset()
            print(elsewhere().data_ptr() == written)
            """,
        )
        self.assertEqual(out, ["False", "True"])

    def test_another_pool_inside_of_a_shape(self):
        out = self.run_script(
            """
            import warnings
            pool, graph = memprof.GraphMemory(), torch.cuda.CUDAGraph()
            with warnings.catch_warnings(record=True) as said, pool.shape("a") as shape:
                with torch.cuda.graph(graph, pool=(77, 0)): pass
                with torch.cuda.graph(torch.cuda.CUDAGraph(), pool=shape.pool): pass
            print(len(said), "pool=shape.pool" in str(said[0].message), graph.pool())
            """
        )
        self.assertEqual(" ".join(out), "1 True (77, 0)")

    def test_two_replays_in_flight_are_named(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory(check=True)
            (a, _), (b, _) = capture(pool, "a", 1), capture(pool, "b", 1)
            other = torch.cuda.CUDAGraph()
            with torch.cuda.graph(other): pass
            clock[:] = [0, 10, 5, 15]
            a.replay(); b.replay()                        # on one stream
            second = Stream()
            clock[:] = [16, 20, 21, 25]
            with stream(second): a.replay()
            b.replay()                                    # the second waited
            clock[:] = [24, 30]
            with stream(second):
                try:
                    a.replay()
                except memprof.GraphMemoryError as error:
                    print("replay of shape a began before the replay of shape b" in str(error))
                other.replay()                            # is none of ours
            clock[:] = [100, 200, 150, 160, 170, 180]     # of two that meet the first, the second does not meet the other
            a.replay()
            for s in Stream(), Stream():
                with stream(s):
                    try:
                        b.replay()
                    except memprof.GraphMemoryError as error:
                        print("replay of shape b began before the replay of shape a" in str(error))
            print(len(replayed), clock)
            """
        )
        self.assertEqual(" ".join(out), "True True True 9 []")

    def test_wrong_uses(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory()
            graph, _ = capture(pool, "a", 1)
            for wrong in (lambda: capture(pool, "a", 1), lambda: pool.persistent(x=(4,)).update(x=torch.empty(5)), lambda: pool.persistent(x=(4,)).slices(5)):
                try:
                    wrong()
                except ValueError as error:
                    print(str(error).split()[-1])
            with pool.shape("b"):
                try:
                    capture(pool, "c", 1)
                except ValueError as error:
                    print(str(error).split()[-1])
            pool.close()
            try:
                capture(pool, "d", 1)
            except memprof.GraphMemoryError as error:
                print(str(error))
            print(list(pool.shapes))
            """
        )
        self.assertEqual(" ".join(out), "first 5 5 b shape d: the graph memory is closed []")

    def test_no_addresses_left(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory(reserve=2**20)
            try:
                capture(pool, "large", 3)
            except AssertionError as error:
                print(error)
            print(pool.usage()["physical"], pool.usage()["ranges"], list(pool.shapes))
            graph, small = capture(pool, "small", 1)
            print(small.extent // M)
            """
        )
        self.assertEqual(" ".join(out), "out of memory 0 0 [] 2")

    def test_persistent_buffers(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory()
            buffers = pool.persistent(tokens=(6, 2), mask=((6,), uint8), like=torch.empty(6, dtype=uint8))
            print(buffers.tokens.dtype, buffers.mask.dtype)
            buffers.mask.fill(9)
            now = buffers.update(4, mask=torch.empty(3, dtype=uint8).fill(1), like=torch.empty(4, dtype=uint8).fill(2))
            print(len(now.mask), buffers.mask.read(), buffers.like.read(), hasattr(now, "tokens"))
            print(len(buffers.update(mask=torch.empty(2, dtype=uint8)).mask), len(buffers.slices(5).tokens))
            print(len(pool.persistent(tokens=7).tokens))
            try:
                pool.persistent(update=(4,))
            except ValueError as error:
                print("cannot be called update" in str(error))
            """
        )
        self.assertEqual(" ".join(out), "torch.float32 torch.uint8 4 [1, 1, 1, 0, 9, 9] [2, 2, 2, 2, 0, 0] False 2 5 7 True")

    def test_captures_are_named(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory()
            buffers = pool.persistent(tokens=((100,), uint8), mask=((100, 2), uint8))
            library, said = memprof._hook.library(), []
            library.memprof_capture_name = lambda *call: said.append(call)
            graph = torch.cuda.CUDAGraph()
            with pool.shape("bs 8") as shape:
                buffers.slices(8), buffers.slices(5)
                with torch.cuda.graph(graph): pass
            print(said == [(b"bs 8", *shape.pool, 24), (None, 0, 0, 0)])
            """
        )
        self.assertEqual(out, ["True"])

    def test_without_the_hook(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory()
            (a, first), (b, second) = capture(pool, "a", 1), capture(pool, "b", 1)
            print(pool.sharing, pool.physical, a.pool() == first.pool != second.pool == b.pool(), first.extent)
            first.reset(); pool.close(); print(list(pool.shapes))
            """,
            hooked=False,
        )
        self.assertEqual(" ".join(out), "False 0 True 0 []")


if __name__ == "__main__":
    unittest.main()
