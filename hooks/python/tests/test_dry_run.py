"""Dry runs of jobs with a real torch, compared with recordings of the same jobs on a GPU."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

from dry_run import MEMPROF, MIB, ROOT, DryRunCase, requests_of, together

# Lines 2 to 20 of a script: a kernel, and what stands for Triton.
TRITON = textwrap.dedent(
    """
    import importlib.machinery, sys, types
    jit = types.ModuleType("triton.runtime.jit")
    exec("class KernelInterface:\\n def __getitem__(self, grid):\\n  return lambda *a, **k: self.run(*a, grid=grid, **k)", jit.__dict__)
    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name.startswith("triton"):
                return importlib.machinery.ModuleSpec(name, self, is_package=name != "triton.runtime.jit")
        def create_module(self, spec):
            return jit if spec.name == "triton.runtime.jit" else None
        def exec_module(self, module):
            pass
    sys.meta_path.append(Finder())
    import triton.runtime.jit
    class Kernel(jit.KernelInterface):
        fn = max
        def run(self, *args, **options):
            raise RuntimeError("0 active drivers")
    kernel = Kernel()
    """
)


class DryRunTest(DryRunCase):
    @unittest.skipUnless(importlib.util.find_spec("torchvision"), "torchvision is not installed")
    def test_alexnet(self):
        self.same_peak("zoo/alexnet", os.path.join(ROOT, "samples/jobs/zoo.py"), "--model", "alexnet")

    @unittest.skipUnless(importlib.util.find_spec("torchvision"), "torchvision is not installed")
    def test_squeezenet(self):
        self.same_peak("zoo/squeezenet1_1", os.path.join(ROOT, "samples/jobs/zoo.py"), "--model", "squeezenet1_1")

    @unittest.skipUnless(importlib.util.find_spec("torchvision"), "torchvision is not installed")
    def test_resnet(self):
        plan, printed = self.record(os.path.join(ROOT, "samples/jobs/resnet50.py"))
        self.assertEqual(self.peak(plan), self.peak(os.path.join(ROOT, "samples/resnet50")))
        self.assertIn("dry run: ended after 4 iterations", printed)
        with open(os.path.join(plan, "run.json")) as f:
            info = json.load(f)
        self.assertEqual((info["source"], info["exit_status"], info.get("problems")), ("dry run", 0, None))
        report = subprocess.run([MEMPROF, "report", "--json", plan], stdout=subprocess.PIPE, text=True, check=True).stdout
        device = json.loads(report)["processes"][0]["devices"][0]
        self.assertEqual(len(device["iterations"]), 4)

    def test_device(self):
        plan, printed = self.script(
            """
            assert torch.cuda.is_available() and torch.cuda.get_device_capability() == (8, 9), torch.cuda.get_device_capability()
            assert torch.cuda.get_device_properties(0).total_memory == torch.cuda.mem_get_info()[1]
            x = torch.ones(1000, 3, device="cuda", requires_grad=True)
            assert x.is_cuda and x.device == torch.device("cuda:0") and x.cpu().device.type == "cpu"
            assert torch.tensor([1, 2], device="cuda").to(torch.int8).device.type == "cuda"
            with torch.autocast("cuda", dtype=torch.bfloat16):
                y = x @ torch.ones(3, 5, device="cuda")
            assert y.dtype == torch.bfloat16 and y.grad_fn is not None
            y.float().sum().backward()
            assert x.grad.device == x.device
            print(torch.cuda.memory_stats()["requested_bytes.all.current"], y, y.sum().item(), y.tolist()[0])
            """,
            flags=("--card", "L4"),
        )
        sizes = self.requests(plan)
        self.assertEqual(sizes[0], 12000)
        self.assertIn(8 * MIB + 128 * 1024, sizes)  # cuBLAS's workspace
        self.assertIn("1.0 is assumed", printed)

    @together.script("x = torch.zeros(1 << 40); y = torch.zeros(10); y[0] = 7; assert y.sum().item() == 7; torch.zeros(3, device='cuda')")
    def test_host_memory_is_none_of_the_devices(self, events):
        self.assertEqual(requests_of(events), [12])

    @together.script("x = torch.zeros(1000, device='cuda'); y = x.view(10, 100)[3]; del x; z = torch.zeros(500, device='cuda'); del y; w = torch.zeros(7, device='cuda')")
    def test_frees_follow_the_references(self, events):
        kinds = [(e["kind"], int(e["requested"])) for e in events if e["kind"] in ("alloc", "free")]
        self.assertEqual(kinds[:4], [("alloc", 4000), ("alloc", 2000), ("free", 4000), ("alloc", 28)])

    @together.script(
        """
        x, wire = torch.empty(1000, device="cuda"), torch.cuda.Stream()
        x.record_stream(wire)
        del x
        y = torch.empty(10, device="cuda")
        wire.synchronize()
        z = torch.empty(20, device="cuda")
        """
    )
    def test_blocks_of_another_stream_wait_until_the_host_does(self, events):
        kinds = [(e["kind"], e["requested"]) for e in events if e["kind"] in ("alloc", "stream_use", "free", "free_done")]
        self.assertEqual([kind for kind, _ in kinds[:6]], ["alloc", "stream_use", "free", "alloc", "free_done", "alloc"])
        self.assertEqual(kinds[5][1], "80")

    @together.script(
        """
        x = torch.ones(1000, device="cuda", requires_grad=True)
        y = x * 2
        (y.sin() * y.cos()).backward(torch.ones_like(y))
        """
    )
    def test_gradients_are_added_in_place(self, events):
        adds = [e for e in events if e["kind"] == "alloc" and int(e["requested"]) == 4000]
        # x, y, sin, cos, product and its gradient; two gradients of the product; of sin's operand cos and a product, of cos's
        # sin, its negative and a product; of x one. The sum of the two of y is none.
        self.assertEqual(len(adds), 14)

    def test_shards(self):
        self.same_peak("irregular/fsdp2", os.path.join(ROOT, "samples/jobs/irregular.py"), "--job", "fsdp2", "--seed", "1")

    @together.script("x = torch.zeros(1000, device='cuda'); x.untyped_storage().resize_(0); y = torch.zeros(500, device='cuda')")
    def test_a_storage_that_loses_its_bytes(self, events):
        kinds = [(e["kind"], int(e["requested"])) for e in events if e["kind"] in ("alloc", "free")]
        self.assertEqual(kinds[:3], [("alloc", 4000), ("free", 4000), ("alloc", 2000)])

    @together.script(
        """
        import weakref

        torch.__future__.set_swap_module_params_on_conversion(True)
        model = torch.nn.Linear(100, 50)
        weight = model.weight
        seen = weakref.ref(weight)
        weight.grad = torch.zeros(50, 100)
        model.cuda()
        found = seen() is model.weight, str(weight.device), str(weight.grad.device), weight.requires_grad
        assert found == (True, "cuda:0", "cuda:0", True), found
        model.half()
        model(torch.empty(7, 100, device="cuda", dtype=torch.half)).sum().backward()
        torch.__future__.set_swap_module_params_on_conversion(False)
        """
    )
    def test_modules_that_move_by_swaps(self, events):
        # As torch from 2.8 on moves fake parameters, and their gradients.
        self.assertEqual(requests_of(events)[:6], [20000, 20000, 200, 10000, 10000, 100])  # weight, gradient, bias, and all three in half the bytes

    @together.script("torch.empty(266730, 192, device='cuda').sum(0); torch.empty(3008, 1536, device='cuda').sum(0); torch.empty(64, 7, device='cuda').sum()")
    def test_workspaces_of_sums(self, events):
        # Of a bias of samples/irregular/graphs: 192 outputs, 1056 blocks for each of the two that make 128, 32 columns of 4.
        self.assertEqual(requests_of(events), [204848640, 768, 103809024, 8, 18481152, 6144, 36962304, 48, 1792, 4])

    @together.script("a = torch.ones(1000, device='cuda'); loss = torch.nn.functional.mse_loss(a, a)")
    def test_a_loss_keeps_the_bytes_of_its_elements(self, events):
        self.assertEqual(requests_of(events), [4000, 4000, 4000])  # a, the loss, and what its elements are reduced in

    @together.script("torch.nn.functional.layer_norm(torch.empty(64, 32, device='cuda').t(), (64,))")
    def test_operands_that_are_not_contiguous_are_copied(self, events):
        self.assertEqual(requests_of(events), [8192, 8192, 8192, 128, 128])  # the operand, the result, the copy, mean and deviation

    @together.script(
        """
        torch.distributed.init_process_group("nccl", init_method="tcp://127.0.0.1:1", rank=0, world_size=2)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 1000, bias=False, device="cuda"))
        model(torch.empty(7, 1000, device="cuda")).sum().backward()
        torch.distributed.destroy_process_group()
        """
    )
    def test_data_parallel(self, events):
        # The weight, its bucket, input and output; the gradient; cuBLAS's workspace of each thread.
        large = [n for n in requests_of(events) if n >= 28000]
        self.assertEqual(large, [4000000, 4000000, 28000, 28000, 32 << 20, 4000000, 32 << 20])

    @together.script(
        """
        import os, threading
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:2:16:8"
        x = torch.ones(5, 7, device="cuda")
        handle = threading.Thread(target=lambda: x @ x.t())
        handle.start(), handle.join()
        del os.environ["CUBLAS_WORKSPACE_CONFIG"]
        """
    )
    def test_workspaces_by_their_setting(self, events):
        chosen = 2 * 4 * MIB + 8 * 16 * 1024
        self.assertEqual(requests_of(events), [5 * 7 * 4, 5 * 5 * 4, chosen])
        self.assertEqual([int(e["requested"]) for e in events if "library=libcublas.so" in e["context"]], [2 * 4 * MIB], "that the library takes itself, in pages of its own")

    @together.script(
        """
        from memprof._dryrun.operators import Operators
        seen = Operators.__torch_dispatch__
        if getattr(Operators, "_should_skip_dynamo", lambda: True)():  # as TorchDispatchMode of torch 2.11 asks
            Operators.__torch_dispatch__ = lambda *args, **more: seen(*args, **more)
        x = torch.ones(1000, device="cuda", requires_grad=True)
        y = x * 2
        (y.sin() + y.cos()).backward(torch.empty(1000, device="cuda"))
        Operators.__torch_dispatch__ = seen
        """
    )
    def test_gradients_are_added_in_place_in_a_torch_that_wraps_modes(self, events):
        # x, y, sine, cosine, sum and its gradient; in backward a factor and a gradient of each, and a product for x.
        self.assertEqual(requests_of(events).count(4000), 6 + 4 + 1 + 1)

    @together.script(
        """
        x = torch.ones(1000, device="cuda", requires_grad=True)
        torch.nn.functional.silu(x).backward(torch.empty(1000, device="cuda"))
        i = torch.zeros(10, dtype=torch.int64, device="cuda")
        x[i].backward(torch.empty(10, device="cuda"))
        """
    )
    def test_operators_that_cuda_has_kernels_for_are_not_composed(self, events):
        # x, silu, its gradient and x's; the index and x[index], its gradient, x's, and five arrays to sort the index in.
        self.assertEqual([n for n in requests_of(events) if n not in (16, 4)], [4000] * 4 + [80, 40, 40, 4000, 80, 80, 80, 80, 160])

    @together.script(
        """
        q = torch.ones(1, 2, 32, 8, device="cuda", requires_grad=True)
        with torch.autocast("cuda", torch.bfloat16), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            found = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        assert found.dtype == torch.bfloat16
        """
    )
    def test_attention_under_autocast(self, events):
        self.assertEqual(requests_of(events).count(4 * 2 * 32 * 32), 2)  # the scores and their softmax, in float32

    @together.script(
        """
        best = torch.rand(100, 50, device="cuda").topk(2).indices
        assert [len(m.nonzero()) for m in (best == 3, ~(best.view(-1) == 3), best != best[:1])] == [4, 196, 196]
        chosen = torch.nn.functional.one_hot(best, 50).sum((0, 1)) > 0  # of 50, by any of 200 choices: 50 * (1 - 0.98 ** 200)
        assert len(chosen.nonzero()) == 49
        """
    )
    def test_masks_of_choices(self, events):
        self.assertIn("0.02 of the elements are nonzero", together.printed)

    @together.script(
        """
        import os, sys, tempfile
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "transformers"))
            with open(os.path.join(folder, "transformers", "masking_utils.py"), "w") as file:
                file.write("def find_packed_sequence_indices(positions):\\n    return (positions.diff() != 1).cumsum(-1)\\n"
                           "def needs_mask(positions):\\n    return find_packed_sequence_indices(positions) is not None\\n")
            sys.path.insert(0, folder)
            from transformers import masking_utils
            sys.path.remove(folder)
        assert not masking_utils.needs_mask(torch.arange(9, device="cuda"))
        del sys.modules["transformers"], sys.modules["transformers.masking_utils"]
        """
    )
    def test_rows_are_one_sequence_for_transformers(self, events):
        self.assertIn("each row of a batch is assumed to hold one sequence", together.printed)
        self.assertEqual(requests_of(events)[-1], 8 * 8)  # its search is computed

    def test_iterations_that_differ(self):
        plan, printed = self.script(
            """
            p = torch.nn.Parameter(torch.ones(1, device="cuda"))
            o = torch.optim.SGD([p])
            for n in (1, 2, 3, 2, 2, 5, 5, 5, 5, 5, 5, 5, 6):
                (p * torch.empty(n, device="cuda")).sum().backward()
                o.step()
            """
        )
        self.assertIn("ended after 10 iterations, as the last 5 made", printed)

    @together.script(
        """
        p = torch.nn.Parameter(torch.ones(1000, device="cuda"))
        o = torch.optim.AdamW([p])
        s = torch.amp.GradScaler("cuda")
        s.scale((p * 2).sum()).backward()
        s.step(o); s.update()
        assert o.state[p]["exp_avg"].is_cuda
        torch.save({"p": p}, "/nonexistent/checkpoint.pt")
        """
    )
    def test_a_step_of_a_scaler_is_taken(self, events):
        labels = [e["context"] for e in events if e["kind"] == "label"]
        self.assertTrue(any("category=optimizer" in text and "optimizer=AdamW" in text for text in labels), labels)

    def test_what_scripts_ask_of_a_device(self):
        checkpoint = tempfile.NamedTemporaryFile(suffix=".pt")
        self.addCleanup(checkpoint.close)
        made = "import sys, torch; torch.save({'w': torch.ones(100), 'step': 7}, sys.argv[1])"
        subprocess.run([sys.executable, "-c", made, checkpoint.name], check=True)
        plan, printed = self.script(
            """
            import copy, sys
            x = torch.ones(1000, 3).pin_memory().to(0, non_blocking=True)
            assert x.is_cuda and x.get_device() == 0 and torch.empty(3, device=0).cuda(0).device == torch.device(0) == torch.device("cuda", 0)
            assert isinstance(x.device, torch.device) and torch.empty(3, pin_memory=True).is_pinned()
            start, end, side = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True), torch.cuda.Stream()
            with torch.cuda.stream(side):
                start.record(); end.record()
                assert torch.cuda.current_stream() == side
            side.wait_event(start); torch.cuda.current_stream().wait_stream(side); end.synchronize()
            assert start.elapsed_time(end) >= 0 and end.query() and side.query()
            loss = x.mean()
            assert (loss.item(), float(loss), int(loss), bool(loss > 0), f"{loss:.3f}") == (1.0, 1.0, 1, False, "1.000")
            assert torch.isfinite(loss) and torch.isfinite(x).all() and not torch.isnan(loss).any()
            assert x.cpu().numpy().mean() == 1.0 and "cuda:0" in str(x)
            torch.randn(3, device="cuda", generator=torch.Generator("cuda").manual_seed(3))
            with torch.device("cuda"):
                model = torch.nn.Linear(3, 3)
            assert next(copy.deepcopy(model).parameters()).is_cuda
            for where in ("cuda:0", torch.device("cuda"), {"cpu": "cuda:0"}):
                found = torch.load(sys.argv[1], map_location=where)
                assert found["w"].is_cuda and found["step"] == 7
            assert torch.load(sys.argv[1])["w"].sum().item() == 100
            torch.compile(model, mode="reduce-overhead")(x); torch.compile(lambda a: a)(x)
            torch.cuda.nvtx.range_push("a"); torch.cuda.nvtx.range_pop()
            assert torch.unique(torch.zeros(1000, dtype=torch.int64, device="cuda")).shape == (100,)
            assert torch.bincount(torch.zeros(5, dtype=torch.int64, device="cuda")).shape == (2,)
            torch.nn.GRU(3, 4, device="cuda")(torch.randn(5, 2, 3, device="cuda"))[0].sum().backward()
            torch.fft.rfft(x)
            torch.save(x, "nowhere/1.pt"); torch.save(x, "nowhere/2.pt")
            """,
            arguments=[checkpoint.name],
        )
        self.assertEqual(printed.count("saving a checkpoint writes nothing"), 1)
        self.assertEqual(printed.count("torch.compile is not run"), 1)
        self.assertRegex(printed, r"dry run: <string>:\d+: recurrent layers are run cell by cell")

    def test_an_extension(self):
        _, printed = self.script(
            """
            x = torch.zeros(3, device="cuda")
            torch._C.TensorBase.data_ptr(x)  # as an extension would
            """,
            status=2,
        )
        self.assertRegex(printed, r"dry run: <string>:4: an extension needs the data of a tensor.*torch\.library\.custom_op")

    def triton(self, text, **more):
        """Runs a script with a kernel that needs a driver, and what stands for Triton, which is not installed."""
        return self.script(TRITON + textwrap.dedent(text), **more)

    def test_a_triton_kernel_is_refused(self):
        plan, printed = self.triton("torch.zeros(3, device='cuda')\nkernel[(1,)](None, BLOCK=4)", status=2)
        self.assertRegex(printed, r'dry run: <string>:22: the Triton kernel max is launched.*@torch\.library\.triton_op\("mine::name", mutates_args=\{"out"\}\)')
        self.refused(plan)

    def test_assumptions(self):
        """Sizes that depend on values; a Triton kernel that is assumed to write in place, and one in an operator."""
        plan, printed = self.triton(
            """
            x = torch.ones(1000, device="cuda")
            assert x.nonzero().shape == (250, 1) and x[x > 0].shape == (250,)
            del x
            x = torch.zeros(3, device="cuda")
            kernel[(1,)](x, BLOCK=4)
            torch.zeros(5, device="cuda")
            @torch.library.triton_op("mine::double", mutates_args={})
            def double(x: torch.Tensor) -> torch.Tensor:
                out = torch.empty_like(x)
                kernel[(1,)](x, out, BLOCK=4)
                return out
            assert double(torch.zeros(7, device="cuda")).is_cuda
            """,
            flags=("--assume", "triton=in-place,nonzero=0.25"),
        )
        self.assertIn("0.25 of the elements are assumed to be nonzero", printed)
        self.assertIn("Triton kernels (max) are not run: they are assumed to write", printed)
        self.assertEqual(self.requests(plan)[-4:], [12, 20, 28, 28])

    @together.refused("torch.nn.DataParallel(torch.nn.Linear(3, 3))")
    def test_several_devices_are_refused(self, refusal):
        self.assertRegex(refusal, r"^<string>:1: DataParallel copies the model to other devices, and a dry run has one")

    @together.refused(
        """
        @torch.library.custom_op("mine::twice", mutates_args=())
        def twice(x: torch.Tensor) -> torch.Tensor:
            return x * 2
        twice(torch.ones(3, device="cuda"))
        """
    )
    def test_an_operator_without_a_fake_kernel(self, refusal):
        self.assertIn('mine::twice has no fake kernel; register one: @torch.library.register_fake("mine::twice")', refusal)

    def test_threads_that_compute_end_before_the_process(self):
        _, printed = self.script(
            """
            import hashlib, threading
            def compute():
                hashlib.pbkdf2_hmac("sha256", b"", b"", 10**5)  # without the interpreter's lock
                print("computed", flush=True)
            threading.Thread(target=compute, daemon=True).start()
            """
        )
        self.assertIn("computed", printed)

    def band(self, plan):
        fit = json.loads(subprocess.run([MEMPROF, "fit", "--json", plan], stdout=subprocess.PIPE, text=True, check=True).stdout)
        return fit["compared"]["peak_requested_band"]

    def test_a_workspace_of_unknown_size_is_a_band(self):
        plan, _ = self.script(
            """
            x, filters = torch.empty(8, 8, 32, 32, device="cuda"), torch.empty(16, 8, 3, 3, device="cuda")
            torch.nn.functional.conv2d(x, filters, padding=1)
            """
        )
        tensors = 4 * (8 * 8 * 32 * 32 + 16 * 8 * 3 * 3 + 8 * 16 * 32 * 32)  # with channels last they are the likely workspace, too
        self.assertEqual(self.peak(plan), 2 * tensors)
        self.assertEqual(self.band(plan), {"least": tensors, "greatest": 2 * tensors + 18 * MIB})

    def test_a_workspace_that_a_recording_has_is_no_band(self):
        plan, _ = self.script(
            """
            x, filters = torch.empty(32, 2048, 7, 7, device="cuda"), torch.empty(512, 2048, 1, 1, device="cuda")
            torch.nn.functional.conv2d(x, filters)
            """
        )
        band = self.band(plan)
        self.assertEqual(band["least"], band["greatest"])
        self.assertEqual(band["least"], self.peak(plan))

    def test_another_table_of_workspaces(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as table:
            table.write("# BYTES KEY\n12345678 forward float32 8x8x32x32 16x8x3x3 1,1 1,1 1,1 1\n")
            table.flush()
            with mock.patch.dict(os.environ, MEMPROF_DRY_RUN_TABLE=table.name):
                plan, _ = self.script("torch.nn.functional.conv2d(torch.empty(8, 8, 32, 32, device='cuda'), torch.empty(16, 8, 3, 3, device='cuda'), padding=1)")
        self.assertEqual(self.requests(plan)[-1], 12345678)

    def test_other_values_of_an_argument(self):
        plan, _ = self.record("-c", "import sys, torch; x = torch.empty(int(sys.argv[2]), 2**18, device='cuda')", "--rows", "4")
        tried = subprocess.run([MEMPROF, "fit", plan, "--try", "rows=8,16", "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout
        found = {t["value"]: t["peak_requested_band"]["greatest"] for t in json.loads(tried)["tries"]}
        self.assertEqual(found, {"8": 8 * MIB, "16": 16 * MIB})

    def test_a_partial_plan_is_refused(self):
        plan, _ = self.script("x = torch.ones(1000, device='cuda'); raise ValueError(1)", status=1)
        self.refused(plan)

    def refused(self, plan):
        """Checks that a plan is known to be partial."""
        fit = subprocess.run([MEMPROF, "fit", plan], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(fit.returncode, 2)
        self.assertIn("the dry run ended early", fit.stdout)


if __name__ == "__main__":
    unittest.main()
