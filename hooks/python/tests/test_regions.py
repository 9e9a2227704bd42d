"""Regions and pauses through the real hook, on the simulated GPU, in a process of its own."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hooked  # noqa: E402


class RegionsTest(hooked.HookedTest):
    def test_pause_and_resume(self):
        out = self.run_script(
            """
            with memprof.region("kv"):
                kv = take(64)
                with memprof.region("weights", backup="host"):
                    weights = take(32)
                with memprof.region(None):
                    take(8)
                take(2)
            fill(weights, 7, 32)
            before = free()
            memprof.pause("kv")
            print(free() - before, memprof.usage()["kv"]["paused"] // M, memprof.usage()["weights"]["paused"] // M)
            memprof.pause()
            print(free() - before, memprof.usage()["weights"]["copied"] // M)
            memprof.resume("weights", "kv")
            print(free() - before, first(weights), fill(kv, 1, 64))
            """
        )
        self.assertEqual(out, ["66", "66", "0", "98", "32", "0", "7", "0"])

    def test_errors_say_what_was_wrong(self):
        out = self.run_script(
            """
            def code(call, *tags):
                try:
                    call(*tags)
                except memprof.PauseError as error:
                    print(error.code, "nobody" in str(error) or "kv" in str(error))
            code(memprof.pause, "nobody")
            with memprof.region("kv"): take(2)
            code(memprof.resume, "kv")
            memprof.pause("kv")
            code(memprof.pause, "kv")
            try:
                with memprof.region("x", backup="tape"): pass
            except ValueError:
                print("ValueError")
            """
        )
        self.assertEqual(out, ["2", "True", "3", "True", "3", "True", "ValueError"])

    def test_regions_are_the_threads_and_lent_to_backward(self):
        out = self.run_script(
            """
            import sys, types
            def engine():
                worker = threading.Thread(target=take, args=(4,))
                worker.start(); worker.join()
            for name in ("torch", "torch.autograd", "torch.autograd.graph"):
                sys.modules[name] = types.ModuleType(name)
            graph = sys.modules["torch.autograd.graph"]
            graph._engine_run_backward = sys.modules["torch.autograd"]._engine_run_backward = engine
            with memprof.region("grads"):
                engine()
                print(memprof.usage()["grads"]["live"] // M)
                graph._engine_run_backward()
                sys.modules["torch.autograd"]._engine_run_backward()
            graph._engine_run_backward()
            print(memprof.usage()["grads"]["live"] // M)
            """
        )
        self.assertEqual(out, ["0", "8"])

    def test_compatible_interface(self):
        out = self.run_script(
            """
            from memprof.compat.torch_memory_saver import torch_memory_saver as saver
            with saver.region(tag="a", enable_cpu_backup=True):
                x = take(16)
                with saver.disable():
                    take(16)
            fill(x, 9, 16)
            before = free()
            saver.pause("a"); print(free() - before)
            saver.resume("a"); print(free() - before, first(x))
            saver.pause(); saver.resume(); print(first(x))
            """
        )
        self.assertEqual(out, ["16", "0", "9", "9"])

    def test_compatible_interface_on_what_is_wrong(self):
        # A server pauses tags that it may have no memory of: there, too, nothing happens.
        out = self.run_script(
            """
            from memprof.compat.torch_memory_saver import configure_subprocess, torch_memory_saver as saver
            saver.hook_mode = "preload"
            with configure_subprocess(): pass
            saver.pause("cuda_graph"); saver.resume("cuda_graph"); saver.pause(); saver.resume()
            with saver.region(tag="a"): x = take(16)
            saver.resume("b")
            saver.pause("a")
            def mode(): saver.hook_mode = "torch"
            def region(**settings):
                with saver.region(**settings): pass
            def disable():
                with saver.disable(): pass
            for wrong in (
                lambda: saver.pause("a"), lambda: saver.pause(), lambda: saver.resume("a") or saver.resume("a"), mode, disable,
                lambda: region(cpu_backup_backend="pinned"), lambda: region(enable_cpu_backup=True, cpu_backup_backend="tape"),
                lambda: region(enable_cpu_backup=True, enable_disk_backup=True), lambda: saver.hook_mode, lambda: saver.memory_margin_bytes,
            ):
                try:
                    wrong()
                except (memprof.PauseError, ValueError, AssertionError, AttributeError, NotImplementedError) as error:
                    print(type(error).__name__)
            """
        )
        self.assertEqual(out, ["PauseError"] * 3 + ["AssertionError"] * 2 + ["ValueError"] * 2 + ["AssertionError", "AttributeError", "NotImplementedError"])
        out = self.run_script(
            """
            from memprof.compat.torch_memory_saver import torch_memory_saver as saver
            try:
                saver.pause("weights")
            except memprof.PauseError as error:
                print(error.code == error.NOT_ACTIVE)
            with saver.region("weights"): pass
            saver.retain_cpu_backup = True
            """,
            hooked=False,
        )
        self.assertEqual(out, ["True"])

    def test_each_region_has_its_backup(self):
        # One tag, four backups: each block has what its own region was given.
        out = self.run_script(
            """
            import tempfile
            from memprof.compat.torch_memory_saver import torch_memory_saver as saver
            with tempfile.TemporaryDirectory() as folder:
                saver.set_disk_backup_dir(folder)
                blocks = []
                for settings in ({"enable_cpu_backup": True}, {"enable_cpu_backup": True, "cpu_backup_backend": "mmap"}, {"enable_disk_backup": True}, {}):
                    with saver.region(**settings): blocks.append(take(4))
                for value, block in enumerate(blocks, 1): fill(block, value, 4)
                before = free()
                saver.pause()
                cover = take(16); fill(cover, 9, 16); hook.memprof_free(cover, 0, 0, None)
                print(free() - before, open("/proc/self/maps").read().count(folder))
                backups = [memprof._tags.regions.backup_at(block, 4 * M) for block in blocks[:3]]
                print(*[ctypes.string_at(copy, 1)[0] for copy in backups[:2]], backups[2])
                saver.resume()
                print(*[first(block) for block in blocks[:3]], first(blocks[3]) != 4, open("/proc/self/maps").read().count(folder))
                print(memprof._tags.regions.backup_at(blocks[0], M))
                saver.retain_cpu_backup = True
                saver.pause()
                copy = memprof._tags.regions.backup_at(blocks[1], M)
                saver.resume()
                print(copy == memprof._tags.regions.backup_at(blocks[1], M))
            """,
        )
        self.assertEqual(out, ["0", "1", "1", "2", "None", "1", "2", "3", "True", "0", "None", "True"])

    def test_settings_of_the_environment(self):
        # Every request and every cudaMalloc is under the tag, but for those of a disabled block.
        out = self.run_script(
            """
            from memprof.compat.torch_memory_saver import torch_memory_saver as saver
            calls = ctypes.CDLL(None)
            pointer = ctypes.c_void_p()
            assert calls.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(6912)) == 0
            x = take(8)
            thread = threading.Thread(target=take, args=(2,)); thread.start(); thread.join()
            with saver.disable():
                y = take(4); hook.memprof_free(y, 0, 0, None)
            cdll = saver._impl._binary_wrapper.cdll
            print(cdll.tms_get_interesting_region(), cdll.tms_get_enable_cpu_backup(), cdll.tms_get_current_tag(), cdll.tms_get_cpu_backup_backend(), saver.retain_cpu_backup)
            with saver.region("other"): z = take(2)
            before = free()
            fill(x, 7, 8)
            print(cdll.tms_pause(None), (free() - before) // 2 * 2)
            assert calls.cudaFree(pointer) == 0
            print(cdll.tms_resume(None), first(x), ctypes.string_at(cdll.tms_get_cpu_backup_pointer(ctypes.cast(x, ctypes.POINTER(ctypes.c_uint8)), M), 1)[0])
            print(cdll.tms_resume(None) != 0, cdll.tms_pause(b"nobody"))
            """,
            more={"TMS_INIT_ENABLE": "1", "TMS_INIT_ENABLE_CPU_BACKUP": "yes", "TMS_INIT_CPU_BACKUP_BACKEND": "mmap", "TMS_RETAIN_CPU_BACKUP": "1"},
        )
        self.assertEqual(out, ["True", "True", "b'default'", "b'mmap'", "True", "0", "14", "0", "7", "7", "True", "0"])
        out = self.run_script(
            """
            from memprof.compat.torch_memory_saver import torch_memory_saver as saver
            try:
                saver.pause()
            except ValueError as error:
                print(str(error).split(":")[0])
            """,
            more={"TMS_INIT_ENABLE": "maybe"},
        )
        self.assertEqual(out, ["TMS_INIT_ENABLE=maybe"])

    def test_wrong_settings_are_reported(self):
        # Of those that only C reads: each is a line of the problems file, and the default holds.
        out = self.run_script(
            """
            import glob
            from memprof import _calls
            cdll = _calls.saver(None)
            print(cdll.tms_get_enable_cpu_backup(), cdll.tms_get_cpu_backup_backend(), cdll.tms_get_retain_cpu_backup())
            take(2)
            said = "".join(open(path).read() for path in glob.glob(os.environ["MEMPROF_SPOOL"] + "/*/problems"))
            for name, value in sorted(os.environ.items()):
                if name.startswith("TMS_"): print("%s=%s: want" % (name, value) in said)
            """,
            more={"TMS_INIT_ENABLE_CPU_BACKUP": "maybe", "TMS_INIT_CPU_BACKUP_BACKEND": "tape", "TMS_RETAIN_CPU_BACKUP": "two"},
        )
        self.assertEqual(out, ["False", "b'pinned'", "False"] + ["True"] * 3)

    def test_functions_of_the_runtime(self):
        # That library is linked with the runtime, so its users find the runtime's functions in it.
        out = self.run_script(
            """
            from memprof.compat.torch_memory_saver import torch_memory_saver as saver
            saver._ensure_initialized()
            cdll = saver._impl._binary_wrapper.cdll
            print(hasattr(cdll, "cudaGetLastError"))
            ctypes.CDLL("libcudart.so.12", ctypes.RTLD_LOCAL)
            print(cdll.cudaGetLastError(), hasattr(cdll, "cudaNothing"))
            """,
            copies=("libcudart.so.12",),
        )
        self.assertEqual(out, ["False", "0", "False"])

    def test_a_job_that_repeats_does_not_grow(self):
        # What the first pass mapped suffices for all others, to the page, also after a pause and a resume.
        out = self.run_script(
            """
            from memprof.compat.torch_memory_saver import torch_memory_saver as saver
            def one_pass():
                blocks = [hook.memprof_malloc(size, 0, None) for size in (64 * M, 64 * M, 4)]
                for block in blocks: hook.memprof_free(block, 0, 0, None)
            first_bytes = hook.memprof_malloc(1000000, 0, None)
            one_pass()
            used = free()
            saver.pause(); saver.resume()
            print(free() == used)
            one_pass()
            print(free() == used)
            """,
            more={"TMS_INIT_ENABLE": "1"},
        )
        self.assertEqual(out, ["True", "True"])

    def test_margin(self):
        out = self.run_script(
            """
            from memprof.compat.torch_memory_saver import torch_memory_saver as saver
            saver.memory_margin_bytes = (free() - 40) * M
            with saver.region():
                print(take(64), take(32) != None)
            print(take(64) != None)
            """
        )
        self.assertEqual(out, ["None", "True", "True"])

    def test_backups_of_the_own_interface(self):
        out = self.run_script(
            """
            import tempfile
            with tempfile.TemporaryDirectory() as folder:
                memprof.backup_folder(folder)
                blocks = {}
                for name in ("pageable", "disk", "discard"):
                    with memprof.region(name, backup=name): blocks[name] = take(4)
                    fill(blocks[name], 5, 4)
                memprof.pause()
                print({name: row["copied"] // M for name, row in memprof.usage().items()} == {"pageable": 4, "disk": 4, "discard": 0})
                memprof.resume()
                print(*[first(blocks[name]) for name in ("pageable", "disk")], os.listdir(folder))
                memprof.backup_folder("/proc/nothing")
                try:
                    memprof.pause("discard", "disk")
                except memprof.PauseError as error:
                    print(error.code == error.NO_DISK, "/proc/nothing" in str(error), memprof.usage()["discard"]["paused"])
            """
        )
        self.assertEqual(out, ["True", "5", "5", "[]", "True", "True", "0"])

    def test_the_other_library_s_name(self):
        # PYTHONPATH has our sitecustomize, as in a recorded job.
        script = """
            import torch_memory_saver, torch_memory_saver.testing_utils
            from torch_memory_saver import torch_memory_saver as saver
            import memprof.compat.torch_memory_saver as ours
            from torch_memory_saver.utils import change_env
            print(torch_memory_saver is ours, saver is ours.torch_memory_saver, torch_memory_saver.configure_subprocess is ours.configure_subprocess)
            with saver.region(): pass
            """
        self.assertEqual(self.run_script(script), ["True"] * 3)
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "torch_memory_saver.py"), "w") as file:
                file.write("theirs = 1\n")
            for wanted, expected in (("auto", "1"), ("installed", "1"), ("memprof", "0")):
                out = self.run_script(
                    """
                    import sys; sys.path.insert(0, %r)
                    import torch_memory_saver; print(getattr(torch_memory_saver, "theirs", 0))
                    """
                    % folder,
                    more={"MEMPROF_MEMORY_SAVER": wanted},
                )
                self.assertEqual(out, [expected], wanted)

    def test_child_processes_have_the_hook(self):
        out = self.run_script(
            """
            from memprof.compat.torch_memory_saver import configure_subprocess
            kept = os.environ.pop("LD_PRELOAD")
            with configure_subprocess(): print(os.environ["LD_PRELOAD"] == kept)
            print("LD_PRELOAD" in os.environ)
            os.environ["LD_PRELOAD"] = "/other.so"
            with configure_subprocess(): print(os.environ["LD_PRELOAD"] == kept + ":/other.so")
            """
        )
        self.assertEqual(out, ["True", "False", "True"])

    def test_without_the_hook(self):
        out = self.run_script(
            """
            with memprof.region("kv", backup="host"): print("inside")
            print(memprof.usage())
            try:
                memprof.pause()
            except memprof.PauseError as error:
                print(error.code == memprof.PauseError.NOT_ACTIVE)
            """,
            hooked=False,
        )
        self.assertEqual(out, ["inside", "{}", "True"])


if __name__ == "__main__":
    unittest.main()
