#!/usr/bin/python3
"""Short trainings give the losses they have always given (tests/fixtures/curves), through `fastllm-host compare`."""
import sys
import unittest

from support import FIXTURES, HostTest, run_host

sys.path.insert(0, str(FIXTURES / "curves"))
import make_curves  # noqa: E402


class Curves(HostTest):
    def test_losses_are_those_of_the_repository(self):
        data = make_curves.prepare_data(self.folder)
        for name in make_curves.CONFIGURATIONS:
            with self.subTest(name):
                self.assert_ok(make_curves.train(name, data, self.folder / name))
                self.assert_ok(run_host("compare", FIXTURES / "curves" / name, self.folder / name, "--tolerance", make_curves.TOLERANCE))

    def test_another_seed_is_told_apart(self):
        """That the tolerance is not so wide that anything passes."""
        data = {**make_curves.prepare_data(self.folder), "model.distributed.seed": 7}
        self.assert_ok(make_curves.train("llama", data, self.folder / "llama"))
        result = run_host("compare", FIXTURES / "curves/llama", self.folder / "llama", "--tolerance", make_curves.TOLERANCE)
        self.assert_ok(result, code=5)
        self.assertIn("first:   training @ 1:", result.stdout)


if __name__ == "__main__":
    unittest.main()
