"""Phases: which a made-up torch is in, how they nest, and that they end whatever is raised."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import pretend  # noqa: E402


class PhasesTest(pretend.ScriptTest):
    def test_phases_survive_exceptions(self):
        self.check(
            """
            def fail(*_): raise KeyError("the job's own")
            model, optimizer = Module(weight=Parameter()), SGD(Parameter())
            broken = Module(weight=Parameter())
            broken.forward = fail
            for call in (broken, lambda: torch.autograd.backward(fail), lambda: optimizer.step(fail), lambda: next(Loader([fail]))):
                try: call()
                except KeyError as error: pass
                else: print("no error")
            print(marks())
            model()
            print(marks(), repr(context()))
            """,
            """
            <forward >forward <backward >backward <optimizer >optimizer <data >data
            <forward >forward ''
            """,
        )

    def test_phases_say_what_they_use(self):
        self.check(
            r"""
            with memprof.phase("roll\tout", uses=("kv cache", "x" * 101 + "y", 7)): pass
            with memprof.phase("x\ty", uses=()): pass
            print(marks().encode().replace(b"x" * 100, b"[100]"))
            """,
            r"b'<roll out\tuses=kv_cache [100] 7 >roll out\tuses=kv_cache [100] 7 <x y >x y'",
        )

    def test_texts_of_any_kind(self):
        """Tags are cut as the hook cuts them, and what is not UTF-8 raises nothing."""
        self.check(
            r"""
            with memprof.phase("caf\udce9", uses=("x" * 99 + "\u00e9", "\udce9")): pass
            memprof.iteration("\udce9")
            print(marks().encode().replace(b"x" * 99, b"[99]"))
            """,
            r"b'<caf?\tuses=[99] ? >caf?\tuses=[99] ? |?'",
        )

    def test_phases_nest(self):
        self.check(
            """
            model = Module(weight=Parameter())
            optimizer = SGD(model._parameters["weight"])
            def closure():
                model(); torch.autograd.backward()
            optimizer.step(closure)
            print(marks())
            torch.autograd.backward(lambda: torch.autograd.backward(model))  # computed again
            print(marks())
            next(Loader([model]))
            print(marks())
            model.forward = torch.autograd.backward  # a gradient that is part of the model
            model()
            print(marks())
            """,
            """
            <optimizer <forward >forward <backward >backward >optimizer |
            <backward >backward
            <data >data
            <forward >forward
            """,
        )

    def test_a_step_inside_a_step_is_one(self):
        self.check(
            """
            class Mine(SGD):
                def step(self): super().step()
            SGD(Parameter())
            Mine(Parameter()).step()
            print(marks())
            """,
            "<optimizer >optimizer |",
        )

    def test_the_compilers_way_to_the_step(self):
        """Some versions of torch take the outermost wrapper of a step off and forbid others."""
        self.check(
            """
            optimizer = SGD(Parameter())
            SGD.step = SGD.step.__wrapped__
            SGD.step.hooked = True
            another = SGD(Parameter())
            optimizer.step()
            print(marks())
            torch.compiler.compiling[0] = True
            optimizer.step()
            print(repr(marks()))
            """,
            "<optimizer >optimizer |\n''",
        )


if __name__ == "__main__":
    unittest.main()
