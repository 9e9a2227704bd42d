"""Which module a request is of: the names of a made-up torch's modules while they run."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import pretend  # noqa: E402


class ModulesTest(pretend.ScriptTest):
    def test_names(self):
        self.check(
            """
            model = Module(weight=Parameter(), layers=Module(conv=Probe(), again=Module(inner=Probe())))
            model(); model._modules["layers"]()
            Probe()()
            print(seen, repr(context()))
            """,
            "['layers.conv', 'layers.again.inner', 'layers.conv', 'layers.again.inner', 'Probe'] ''",
        )

    def test_names_leave_wrappers_out(self):
        self.check(
            """
            class DistributedDataParallel(Module): pass
            class Net(Probe): pass
            net = Net(weight=Parameter(), fc=Probe())
            wrapped = DistributedDataParallel(module=Module(_orig_mod=net))
            wrapped()
            print(seen, sorted(t for t in texts if "weights" in t))
            """,
            "['Net'] ['category=weights\\tname=weight']",
        )

    def test_second_model_has_its_class_before_its_names(self):
        self.check(
            """
            class Critic(Module): pass
            model, critic = Module(weight=Parameter(), main=Probe()), Critic(weight=Parameter(), main=Probe())
            critic2 = Critic(weight=Parameter(), main=Probe())
            model(); critic(); critic2()
            whole = Critic(model=model, head=Probe())
            whole()
            print(seen)
            """,
            "['main', 'Critic.main', 'Critic.main', 'model.main', 'head']",
        )

    def test_modules_that_come_later(self):
        self.check(
            """
            class Net(Module):
                def forward(self, x=None):
                    super().forward(x)
                    Probe()()
            model = Net(weight=Parameter(), first=Probe())
            model()
            model._modules["second"] = Probe()
            model()
            print(seen)
            """,
            "['first', 'Net.Probe', 'first', 'second', 'Net.Probe']",
        )

    def test_modules_are_forgotten_with_their_ids(self):
        self.check(
            """
            import memprof._attribution as attribution
            modules = attribution._installed.modules
            for _ in range(5): Module(weight=Parameter(), part=Probe())()
            print(len(modules._contexts), len(modules._known), len(modules._roots))
            """,
            "0 0 0",
        )

    def test_threads_have_contexts_of_their_own(self):
        self.check(
            """
            import threading
            class Waits(Probe):
                def forward(self, x=None):
                    thread = threading.Thread(target=lambda: seen.append(context()))
                    thread.start(); thread.join()
                    return super().forward(x)
            Module(weight=Parameter(), part=Waits())()
            print(seen)
            """,
            "['', 'part']",
        )

    def test_compiled_module_is_called(self):
        self.check(
            """
            fast, slow = Probe(), Probe()
            fast._compiled_call_impl = lambda x=None: seen.append("compiled " + context().replace("module=", ""))
            Module(weight=Parameter(), fast=fast, slow=slow)()
            print(seen)
            """,
            "['compiled fast', 'slow']",
        )


if __name__ == "__main__":
    unittest.main()
