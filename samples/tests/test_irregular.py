"""By what steps of irregular jobs are compared: checks/irregular.py."""

import json
import os
import sys
import tempfile
import types
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from checks import irregular  # noqa: E402
from checks.suite import FIRST, Failed, Suite  # noqa: E402


class IrregularTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.figures = []
        self.suite = types.SimpleNamespace(work=folder.name, memprof="memprof", figure=lambda *figure: self.figures.append(figure), run=self.fit)
        self.suite.compared = lambda *args: Suite.compared(self.suite, *args)
        self.slowdown = 0.0

    def fit(self, command):
        rows = [{"preset": "compact", "handle": "", "trim": "never", "slowdown": self.slowdown}]
        return types.SimpleNamespace(stdout=json.dumps({"rows": rows}))

    def times(self, kind, k, iterations):
        path = os.path.join(self.suite.work, f"job-{kind}-{k}.times")
        with open(path, "w") as f:
            f.writelines(f"{ns} {ns} {ns} 9\n" for ns in iterations)
        return path

    def wrong(self, rounds, classic=1, compact=1):
        """What is wrong with rounds of two jobs of a kind that have so many thirds of a millisecond in the hook, of steps of 100."""
        steps = FIRST + irregular.in_turns.LEAST + sum(len(turn[0]) + 1 for turn in rounds["compact"])
        for kind, ms in (("classic", classic), ("compact", compact)):
            self.times(kind, 0, [9_000_000] * FIRST + [ms * 1_000_000] * (steps - FIRST))
            self.times(kind, 1, [9_000_000] * FIRST + [2 * ms * 1_000_000] * (steps - FIRST))
        return [text for text in irregular.Compared(self.suite, "job", rounds).wrong() if text]

    def test_time_in_hook_is_of_the_median_iteration(self):
        first = [5_000_000] * FIRST
        paths = [self.times("compact", 0, [*first, 100, 400, 100, 90_000]), self.times("compact", 1, [*first, 200, 200, 200, 80_000])]
        self.assertAlmostEqual(irregular.in_hook(paths, FIRST + 4), 3 * 150 / 1e6)  # of 100, 200, 100 and 80,000
        twice = [self.times("compact", 0, [7] * 2 * FIRST + [100, 100] * 4)]
        self.assertAlmostEqual(irregular.in_hook(twice, FIRST + 4), 2 * 3 * 100 / 1e6)  # two iterations a step
        with self.assertRaisesRegex(Failed, "48, 23 iterations were timed"):
            irregular.in_hook([paths[0], self.times("compact", 1, [*first, 1, 1, 1])], FIRST + 4)

    def test_steps_decide_for_steady_jobs(self):
        steady = {"expandable": [[[100.0], [100.0]]] * 2, "classic": [[[100.0], [101.0]]] * 2, "compact": [[[106.0], [106.0]]] * 2}
        self.assertEqual(len(self.wrong(steady)), 3)  # both ratios, and what fit foretold
        self.slowdown = 0.06
        self.assertEqual(len(self.wrong(steady, compact=3)), 2)  # the card hides the time in the hook, or the ratio would be larger
        faster = {**steady, "compact": [[[101.0], [101.0]]] * 2, "classic": [[[104.0], [104.0]]] * 2}
        self.assertEqual(self.wrong(faster), ["job: fit predicts 1.060 of classic's step under compact, measured 0.971"])

    def test_time_in_hook_decides_where_jobs_of_a_kind_differ(self):
        loose = {"expandable": [[[100.0], [115.0]]] * 2, "classic": [[[100.0], [115.0]]] * 2, "compact": [[[106.0], [120.0]]] * 2}
        self.assertEqual(self.wrong(loose), [])
        self.assertEqual(self.figures[0][1], "3.000 / 3.000 ms of 106.00: +0.00 % of a step")
        hook, fit = self.wrong(loose, compact=2)
        self.assertEqual(hook, "job: under compact the hook takes 2.83 % of a step more than under classic")
        self.assertEqual(fit, "job: fit predicts 1.000 of classic's step under compact, measured 1.028")


if __name__ == "__main__":
    unittest.main()
