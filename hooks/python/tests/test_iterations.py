"""Where iterations end, as a made-up torch trains and infers in a process of its own."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import pretend  # noqa: E402


class IterationsTest(pretend.ScriptTest):
    def test_training(self):
        self.check(
            """
            weight = Parameter()
            model, optimizer = Module(fc=Module(weight=weight)), SGD(weight)
            for batch in Loader([1, 2]):
                model(batch); torch.autograd.backward(); optimizer.step()
            print(marks())
            """,
            "<data >data <forward >forward <backward >backward <optimizer >optimizer | "
            "<data >data <forward >forward <backward >backward <optimizer >optimizer | <data >data",
        )

    def test_begun_in_the_middle(self):
        """What a job has before the wrappers come counts from then on: classes of optimizers with objects, and modules."""
        self.check(
            """
            from memprof import _attribution
            Module.__call__, Optimizer.__init__ = Module.__call__.__wrapped__, Optimizer.__init__.__wrapped__  # as before
            weight = Parameter()
            model, optimizer = Module(fc=Module(weight=weight)), SGD(weight)
            optimizer.step()
            print(marks() or "nothing")
            _attribution.install(torch)
            model(1); optimizer.step()
            print(marks())
            """,
            """
            nothing
            <forward >forward <optimizer >optimizer |
            """,
        )

    def test_accumulation_and_evaluation_end_nothing(self):
        self.check(
            """
            weight = Parameter()
            model, optimizer = Module(weight=weight), SGD(weight)
            for _ in range(3):
                for _ in range(4): model(); torch.autograd.backward()
                optimizer.step()
                torch._grad[0] = False
                model()
                torch._grad[0] = True
            print(marks().count("|"))
            """,
            "3",
        )

    def test_several_optimizers_make_a_round(self):
        self.check(
            """
            a, b = SGD(Parameter()), SGD(Parameter())
            for _ in range(3): a.step(); b.step()
            print(marks().count("|"))
            del a
            b.step(); b.step()
            print(marks().count("|"))
            """,
            "3\n2",
        )

    def test_a_leader_that_rests_is_replaced(self):
        self.check(
            """
            warm, main = SGD(Parameter()), SGD(Parameter())
            warm.step()
            for _ in range(30): main.step()
            print(marks().count("|"))
            warm.step(); main.step()
            print(marks().count("|"))
            """,
            "22\n1",
        )

    def test_scaler_that_leaves_a_step_out(self):
        self.check(
            """
            optimizer, scaler = SGD(Parameter()), GradScaler()
            scaler.step(optimizer)
            scaler.finite = False
            scaler.step(optimizer); scaler.step(optimizer)
            scaler.finite = True
            print(scaler.step(optimizer))
            print(marks())
            """,
            "stepped\n<optimizer >optimizer | | | <optimizer >optimizer |",
        )

    def test_inference(self):
        self.check(
            """
            model, loss = Module(weight=Parameter()), Module()
            torch._grad[0] = False
            for _ in range(3): loss(model(1))
            print(marks())
            """,
            "<forward >forward | <forward >forward <forward >forward | <forward >forward <forward >forward | <forward >forward",
        )

    def test_inference_that_could_train(self):
        self.check(
            """
            import atexit
            atexit.register(lambda: print(marks()))
            import memprof._attribution as attribution
            atexit.unregister(attribution._installed.iterations.forward_begins)
            atexit.register(lambda: (attribution._installed.iterations.forward_begins()))
            model = Module(weight=Parameter())
            model(); model()
            print(marks())
            """,
            "<forward >forward | <forward >forward\n|",
        )

    def test_training_by_hand(self):
        self.check(
            """
            model = Module(weight=Parameter())
            for _ in range(3): model(); torch.autograd.backward()
            print(marks())
            """,
            " ".join(["<forward >forward <backward >backward |"] * 3),
        )

    def test_iteration_by_the_script_is_the_only_one(self):
        self.check(
            """
            optimizer = SGD(Parameter())
            optimizer.step()
            memprof.iteration("mine")
            optimizer.step()
            print(marks())
            """,
            "<optimizer >optimizer | |mine <optimizer >optimizer",
        )


if __name__ == "__main__":
    unittest.main()
