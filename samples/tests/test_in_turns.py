"""The arithmetic of in_turns.py; cmd/memprof/testdata/script/study/in_turns.txtar has its jobs."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import in_turns

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


if __name__ == "__main__":
    unittest.main()
