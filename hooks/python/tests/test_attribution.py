"""Iterations, phases, modules and labels together: which of them each level records."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import pretend  # noqa: E402


class AttributionTest(pretend.ScriptTest):
    def test_levels(self):
        script = """
            weight = Parameter()
            model, optimizer = Module(weight=weight, part=Probe()), SGD(weight)
            for batch in Loader([1]):
                model(batch); torch.autograd.backward(); optimizer.step()
            print(seen, [c for c in calls if c[0] == "label"])
            print(marks())
            """
        self.check(script, "[''] []\n|", level="none")
        self.check(script, "[''] []\n<data >data <forward >forward <backward >backward <optimizer >optimizer | <data >data", level="phases")

    def test_nothing_while_the_compiler_traces(self):
        self.check(
            """
            torch.compiler.compiling[0] = True
            model = Module(weight=Parameter(), part=Probe())
            model(); torch.autograd.backward(); next(Loader([1]))
            print(repr(marks()), seen)
            """,
            "'' ['']",
        )

    def test_trouble_of_our_own_is_not_the_jobs(self):
        self.check(
            """
            weight = Parameter()
            model, optimizer = Module(weight=weight), SGD(weight)
            del model._buffers, optimizer.param_groups
            model(1); optimizer.step(); optimizer.step()
            problems = [c[1].decode() for c in calls if c[0] == "problem"]
            print(problems)
            print(marks())
            """,
            """
            ["attribution: _describe: AttributeError: 'Module' object has no attribute '_buffers'", "attribution: gradients: AttributeError: 'SGD' object has no attribute 'param_groups'"]
            <forward >forward <optimizer >optimizer | <optimizer >optimizer |
            """,
        )


if __name__ == "__main__":
    unittest.main()
