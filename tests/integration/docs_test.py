#!/usr/bin/python3
"""The documentation says what is so: every YAML block is a valid configuration, every command of the README runs, links lead somewhere."""
import re
import shlex
import subprocess
import unittest

from support import BUILD, HOST, SOURCE, HostTest, environment, run_host

PAGES = sorted([*SOURCE.glob("*.md"), *SOURCE.glob("docs/**/*.md"), *SOURCE.glob("examples/*.md"), *SOURCE.glob("bench/*.md")])


def blocks(page, language):
    """Fenced blocks of a language: (line, text)."""
    found, start, lines = [], None, page.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        if start is None and line.startswith("```"):
            start = number if line[3:].strip() == language else -1
        elif start is not None and line.startswith("```"):
            if start > 0:
                found.append((start, "\n".join(lines[start:number - 1]) + "\n"))
            start = None
    return found


class Docs(HostTest):
    def test_every_yaml_block_is_a_valid_configuration(self):
        checked = 0
        for page in PAGES:
            for line, text in blocks(page, "yaml"):
                with self.subTest(f"{page.relative_to(SOURCE)}:{line}"):
                    path = self.folder / "train.yaml"
                    path.write_text(text)
                    self.assert_ok(run_host("--plugin", "gpt", path, "--validate"))
                    checked += 1
        self.assertGreater(checked, 5)

    def test_every_example_is_a_valid_configuration(self):
        examples = sorted([*SOURCE.glob("examples/*.yaml"), *SOURCE.glob("bench/*.yaml")])
        self.assertGreaterEqual(len(examples), 2)
        for path in examples:
            with self.subTest(path.name):
                self.assert_ok(run_host("--plugin", "gpt", path, "--validate"))

    def test_configuration_reference_is_what_the_program_declares(self):
        page = (SOURCE / "docs/configuration.md").read_text()
        self.assertEqual(page, self.assert_ok(run_host("schema", "--plugin", "gpt", "--markdown")).stdout)

    def test_links(self):
        for page in PAGES:
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
                if not re.match(r"[a-z]+:", target):
                    with self.subTest(f"{page.relative_to(SOURCE)} -> {target}"):
                        self.assertTrue((page.parent / target).exists())

    def test_commands_of_the_readme(self):
        """Scripts have tests of their own. What would train for minutes is validated instead."""
        for name in ("examples", "bench", "docs"):
            (self.folder / name).symlink_to(SOURCE / name)
        commands = [line.strip() for _, text in blocks(SOURCE / "README.md", "bash") for line in text.replace("\\\n", " ").splitlines()
                    if line.strip() and not line.startswith("#")]
        self.assertGreater(len(commands), 4)
        for command in commands:
            words = shlex.split(command, comments=True)
            if words[0] in ("./scripts/quickstart.sh", "./scripts/test.sh", "git", "cd"):
                self.assertTrue(words[0] in ("git", "cd") or (SOURCE / words[0]).is_file())
                continue
            with self.subTest(command):
                self.assertEqual(words[0], "build/release/bin/fastllm-host")
                text = command.replace(words[0], shlex.quote(str(HOST)), 1)
                if any(w.endswith(".yaml") for w in words) and "--validate" not in words:
                    text += " --validate"
                result = subprocess.run(["bash", "-c", text], cwd=self.folder, env=environment(), capture_output=True, text=True)
                self.assert_ok(result)


if __name__ == "__main__":
    unittest.main()
