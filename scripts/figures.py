"""Draw the pictures of the documentation: the lines of its gallery, each figure under the name of its link.

python scripts/figures.py [FOLDER]        # docs/_static by default
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import matplotlib

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "docs" / "gallery.md"
_PART = re.compile(r"^```python\n(.*?)^```$|^!\[[^]]*\]\(_static/(\w+)\.png\)$", re.MULTILINE | re.DOTALL)
# Pixels an inch: lines stay sharp on a page of 1100 pixels, and a file below 100 kB.
DPI = 80


def draw(folder: Path) -> list[Path]:
    """Type the blocks of the gallery in their order; what a block leaves as ``figure`` goes into a file."""
    matplotlib.use("Agg")
    names: dict[str, object] = {}
    files = []
    for code, picture in _PART.findall(GALLERY.read_text()):
        if code:
            exec(compile(code, GALLERY.name, "exec"), names)
            continue
        figure = names.pop("figure")  # missing if a picture stands under no code of its own
        file = folder / f"{picture}.png"
        figure.savefig(file, dpi=DPI, metadata={"Software": None})  # type: ignore[attr-defined]
        files.append(file)
    return files


def main() -> None:
    """Write all, and say what."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "_static"
    for file in draw(folder):
        print(f"{file}: {file.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
