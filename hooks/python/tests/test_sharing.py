"""Memory of a tag that other processes use, through the real hook: shared, kept beyond its process, in communicators."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hooked  # noqa: E402


class SharingTest(hooked.HookedTest):
    def test_shared_tag(self):
        # The simulation knows only its own process's memory: the other process is this one.
        out = self.run_script(
            """
            import pickle
            with memprof.region("weights"):
                x, y = take(64), take(3)
            fill(x, 5, 64), fill(y, 6, 3)
            shared = pickle.loads(pickle.dumps(memprof.share("weights")))
            with memprof.attach(shared) as weights:
                print(first(weights.address(x)), first(weights.address(y + 3 * M - 1)), weights.address(x) != x)
                print(weights.array(y, (3, 2), "<f4").__cuda_array_interface__["data"][0] == weights.address(y))
                fill(weights.address(x), 9, 1)
            print(first(x), first(x + M))
            import warnings
            weights = memprof.attach(shared)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                memprof.pause("weights")
                print(len(said), "yet only 0.00 GiB more are free" in str(said[0].message), said[0].filename)
                weights.close()
                memprof.resume("weights"); memprof.pause("weights")
                print(len(said))
            for wrong in (lambda: memprof.share("nobody"), lambda: weights.address(x), lambda: memprof.attach([("memprof-arena no 10", 16, 16)])):
                try:
                    wrong()
                except (RuntimeError, ValueError) as error:
                    print(type(error).__name__)
            """
        )
        self.assertEqual(out, ["5", "6", "True", "True", "9", "5", "1", "True", "<string>", "1", "RuntimeError", "ValueError", "RuntimeError"])

    OWNER = """
            import json, signal, subprocess, sys, time
            def owner(what):
                # A process with the hook that allocates two parts under the tag, keeps or shares them, and waits.
                text = sys.orig_argv[2].split("import json, signal")[0] + (
                    'import json, time\\n'
                    'with memprof.region("weights"): parts = [take(300), take(40)]\\n'
                    'fill(parts[0], 7, 300), fill(parts[1], 9, 40)\\n'
                    'path = os.path.join(os.environ["MEMPROF_SPOOL"], "kept")\\n' + what +
                    'print(json.dumps({"parts": parts, "shared": shared}), flush=True)\\n'
                    'time.sleep(300)\\n')
                process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
                return process, json.loads(process.stdout.readline())
            def kill(process):
                process.send_signal(signal.SIGKILL)
                process.wait(), process.stdout.close()
            path = os.path.join(os.environ["MEMPROF_SPOOL"], "kept")
            def refused(call, *arguments):
                try:
                    call(*arguments)
                except RuntimeError as error:
                    return str(error).replace(path, "PATH")
            """

    def test_owner_is_killed(self):
        out = self.run_script(
            self.OWNER
            + """
            process, said = owner('shared = memprof.share("weights")\\n')
            there = memprof.attach(said["shared"])
            kill(process)
            print(first(there.address(said["parts"][0])), first(there.address(said["parts"][1] + 40 * M - 1)))  # the peer goes on
            fill(there.address(said["parts"][0]), 8, 300)
            print(first(there.address(said["parts"][0] + 300 * M - 1)))
            there.close()
            print("its process has ended" in refused(memprof.attach, said["shared"]))
            """
        )
        self.assertEqual(out, ["7", "9", "8", "True"])

    def test_keeper(self):
        out = self.run_script(
            self.OWNER
            + """
            process, said = owner('shared = memprof.keep("weights", path, about=parts).shared\\n')
            kill(process)
            kept = memprof.kept(path)
            print(kept.about == said["parts"], oct(os.stat(path).st_mode)[-3:], "MEMPROF" in open("/proc/%d/environ" % kept.pid).read())
            there = memprof.attach(kept.shared)
            print(first(there.address(kept.about[0] + 300 * M - 1)), first(there.address(kept.about[1])))
            fill(there.address(kept.about[0]), 3, 300)
            there.close()
            second, _ = owner('shared = memprof.kept(path).shared; mine = memprof.attach(shared); assert first(mine.address(memprof.kept(path).about[0])) == 3\\n')
            kill(second)
            with memprof.region("more"): take(2)
            print(refused(memprof.keep, "more", path).split(":")[0].replace(" ", "_"))
            kept.end()
            wait_for_end(kept.pid)
            print(os.path.exists(path), os.path.exists("/proc/%d" % kept.pid), "its process has ended" in refused(memprof.attach, kept.shared))
            print(refused(memprof.kept, path).split(":")[0].replace(" ", "_"))
            try:
                memprof.keep("more", "/nowhere/kept")
            except RuntimeError as error:
                print("No_such_file" in str(error).replace(" ", "_"))
            """
        )
        self.assertEqual(out, ["True", "600", "False", "7", "9", "PATH_exists", "False", "False", "True", "nothing_is_kept_at_PATH", "True"])

    def test_keeper_while_the_driver_refuses(self):
        # Each call of the driver that keep and attach make fails in turn: an exception, nothing is left of it, and the next try succeeds.
        script = """
            path = os.path.join(os.environ["MEMPROF_SPOOL"], "kept")
            before = free()
            with memprof.region("weights"): a, b = take(300), take(40)
            fill(a, 7, 1), fill(a + 299 * M, 7, 1), fill(b, 9, 1)
            held, files = free(), set(os.listdir(os.environ["MEMPROF_SPOOL"]))
            def again(call, *arguments):
                try:
                    return call(*arguments)
                except RuntimeError as error:
                    print(call.__name__, "made" if "cannot be" in str(error) else error)
                    assert first(a) == 7 and first(b) == 9 and free() == held
                    assert call is memprof.attach or set(os.listdir(os.environ["MEMPROF_SPOOL"])) == files
                    return call(*arguments)
            kept = again(memprof.keep, "weights", path)
            there = again(memprof.attach, kept.shared)
            print(first(there.address(a + 300 * M - 1)), first(there.address(b)))
            there.close()
            kept.end()
            wait_for_end(kept.pid)
            hook.memprof_free(a, 0, 0, None), hook.memprof_free(b, 0, 0, None)
            hook.memprof_empty_cache(0)
            print(free() == before)
            """
        # The first calls of those that map are the allocator's own: two growths, of two handles and one.
        calls = [("cuMemExportToShareableHandle", "keep", 1, 3), ("cuMemImportFromShareableHandle", "attach", 1, 3), ("cuMemMap", "attach", 4, 6), ("cuMemSetAccess", "attach", 3, 5), ("cuMemAddressReserve", "attach", 2, 2)]
        for name, refused, least, most in calls:
            for n in range(least, most + 1):
                with self.subTest(name=name, n=n):
                    out = self.run_script(script, more={"MEMPROF_SIM_FAIL": "%s:%d=999" % (name, n)})
                    self.assertEqual(out, [refused, "made", "7", "9", "True"])

    def test_communicators(self):
        # There is none: nothing is paused.
        out = self.run_script(
            """
            with memprof.region("kv"): take(2)
            for call in (memprof.pause, memprof.resume):
                try:
                    call("kv", communicators=True)
                except memprof.PauseError as error:
                    print(error.code, memprof.usage()["kv"]["mapped"] // M)
                if call is memprof.pause: memprof.pause("kv")
            """
        )
        self.assertEqual(out, ["3", "2", "3", "2"])


if __name__ == "__main__":
    unittest.main()
