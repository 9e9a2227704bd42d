"""Memory of a tag that other processes use, through the real hook."""

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
                # A process with the hook that allocates two parts under the tag, shares them, and waits.
                text = sys.orig_argv[2].split("import json, signal")[0] + (
                    'import json, time\\n'
                    'with memprof.region("weights"): parts = [take(300), take(40)]\\n'
                    'fill(parts[0], 7, 300), fill(parts[1], 9, 40)\\n'
                    + what +
                    'print(json.dumps({"parts": parts, "shared": shared}), flush=True)\\n'
                    'time.sleep(300)\\n')
                process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
                return process, json.loads(process.stdout.readline())
            def kill(process):
                process.send_signal(signal.SIGKILL)
                process.wait(), process.stdout.close()
            def refused(call, *arguments):
                try:
                    call(*arguments)
                except RuntimeError as error:
                    return str(error)
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


if __name__ == "__main__":
    unittest.main()
