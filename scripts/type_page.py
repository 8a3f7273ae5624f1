"""Type the code blocks of a Markdown page in their order, and print what each gives.

    python scripts/type_page.py docs/tour.md

Blocks of shell commands (```bash) run in the repository's root; examples (```python with >>>) in one
interpreter, where what they print is compared with the page. Stops at the first that fails.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path

_BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


class PageError(Exception):
    """A block failed, or gave something else than the page says."""


def type_page(page: Path) -> tuple[int, int]:
    """Run all blocks of a page.

    Returns:
        How many commands and how many Python examples were run.

    Raises:
        PageError: one failed, or the page has none.
    """
    text = page.read_text()
    names: dict[str, object] = {"__name__": "__main__"}
    n_commands = n_examples = 0
    headings = {match.start(): match[1] for match in _HEADING.finditer(_BLOCK.sub(_blank, text))}
    blocks = {match.start(): (match[1], match[2]) for match in _BLOCK.finditer(text)}
    for place in sorted(headings | blocks):
        if place in headings:
            print(f"\n## {headings[place]}\n", flush=True)
            continue
        language, code = blocks[place]
        if language == "bash":
            n_commands += 1
            run_commands(code)
        else:
            for example in doctest.DocTestParser().get_examples(code):
                n_examples += 1
                run_example(example, names)
    if not blocks:
        raise PageError(f"{page} has no blocks of code")
    return n_commands, n_examples


def run_commands(code: str) -> None:
    """Run a block of shell commands.

    Raises:
        PageError: it ends with another code than 0.
    """
    print("$ " + "\n$ ".join(code.strip().splitlines()), flush=True)
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=False)
    if done.returncode:
        raise PageError(f"exit code {done.returncode} of: {code.strip()}")


def run_example(example: doctest.Example, names: dict[str, object]) -> None:
    """Run one example as the interpreter would, with the names of those before it.

    Raises:
        PageError: it raises, or prints something else.
    """
    prompts = [">>> ", *["... "] * (example.source.count("\n") - 1)]
    for prompt, line in zip(prompts, example.source.splitlines(), strict=True):
        print(prompt + line, flush=True)
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(example.source, "<page>", "single"), names)
    except Exception as error:
        traceback.print_exc()
        raise PageError(f"an example failed: {example.source.strip()}") from error
    print(out.getvalue(), end="", flush=True)
    if not doctest.OutputChecker().check_output(example.want, out.getvalue(), _FLAGS):
        raise PageError(f"{example.source.strip()} gave the above, the page says:\n{example.want}")


def _blank(block: re.Match[str]) -> str:
    """As long, without lines that look like headings."""
    return " " * len(block[0])


def main() -> int:
    """Type the page named; the exit code says whether all of it worked."""
    page, begin = Path(sys.argv[1]), time.monotonic()
    try:
        n_commands, n_examples = type_page(page)
    except PageError as error:
        print(f"\n{page} STOPPED: {error}", flush=True)
        return 1
    seconds = time.monotonic() - begin
    print(f"\n{page} complete: {n_examples} examples and {n_commands} commands in {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
