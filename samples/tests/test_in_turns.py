"""Tests of in_turns.py that need no GPU: run by make test."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import in_turns

# Trains as a job with --in-turns does: each step takes as many milliseconds as it says.
JOB = """
import sys
for line in sys.stdin:
    print("turn " + " ".join("%d" % (int(sys.argv[1]) + i) for i in range(int(line))), flush=True)
"""


def job(milliseconds, folder):
    return in_turns.Job([sys.executable, "-c", JOB, str(milliseconds)], os.path.join(folder, f"err{milliseconds}"))


class InTurnsTest(unittest.TestCase):
    def test_steps_are_compared_by_iteration(self):
        # An iteration of 10 ms, then one of 40, twice as long in one process because of other work.
        slow = [[[11.0, 44.0], [22.0, 44.0]], [[11.0, 88.0], [11.0, 44.0]]]
        base = [[[10.0, 40.0], [10.0, 40.0]], [[10.0, 80.0], [30.0, 40.0]]]
        self.assertEqual(in_turns.steps(slow), [11, 44, 11, 44])
        self.assertEqual(in_turns.ratio(slow, base), (1.1, 1.1, 1.1))
        self.assertIsNone(in_turns.apart([[[1.0]], [[2.0]]]))
        self.assertAlmostEqual(in_turns.apart([[[1.0, 1.0], [1.1, 1.1]]]), 0.1 / 1.05)

    def test_interval_of_a_median(self):
        rounds = [[[float(n)]] for n in range(1, 101)]
        self.assertEqual(in_turns.ratio(rounds, [[[1.0]]] * 100), (50.5, 40, 61))  # 39 on each side, as the tables of the sign test say
        self.assertEqual(in_turns.ratio(rounds[:3], [[[1.0]]] * 3), (2, 1, 3))

    def test_turns(self):
        with tempfile.TemporaryDirectory() as folder:
            kinds = {kind: [job(ms + k, folder) for k in range(2)] for kind, ms in (("a", 200), ("b", 400))}
            rounds = in_turns.measure(kinds, 1, 0)
            few = in_turns.processors(0, 1)[-in_turns.PROCESSORS :]
            self.assertEqual({frozenset(os.sched_getaffinity(one.process.pid)) for of in kinds.values() for one in of}, {frozenset(few)})
            self.assertEqual([one.end()[0] for of in kinds.values() for one in of], [0] * 4)
        self.assertEqual(rounds["a"], [[[201, 202], [202, 203]]] * 2)  # without the first of three
        self.assertEqual(rounds["b"], [[[401, 402], [402, 403]]] * 2)


if __name__ == "__main__":
    unittest.main()
