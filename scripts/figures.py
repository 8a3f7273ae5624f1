"""Draw the pictures of the documentation: the gallery, each figure under its link's name; calculators.

python scripts/figures.py [FOLDER]        # docs/_static by default; needs chromium or google-chrome
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib
from PIL import Image, ImageChops

from sstorch import PrognosticTree, load_dataset
from sstorch.deploy import export_calculator

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "docs" / "gallery.md"
_PART = re.compile(r"^```python\n(.*?)^```$|^!\[[^]]*\]\(_static/(\w+)\.png\)$", re.MULTILINE | re.DOTALL)
# Pixels an inch, and across at least: lines stay sharp on a page of 1100 pixels, and a file below 100 kB.
DPI, ACROSS = 80, 760


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
        dpi = max(DPI, ACROSS / figure.get_figwidth())  # type: ignore[attr-defined]
        figure.savefig(file, dpi=dpi, metadata={"Software": None})  # type: ignore[attr-defined]
        files.append(_few_colours(file, 128))
    return files


def _few_colours(file: Path, n: int) -> Path:
    """Write a picture anew with a palette, in less than half of the bytes."""
    Image.open(file).convert("RGB").quantize(n).save(file, optimize=True)
    return file


def _without_bottom(file: Path) -> None:
    """Cut what has the colour of the bottom off a picture, but for a margin of 10 pixels."""
    picture = Image.open(file).convert("RGB")
    bottom = Image.new("RGB", picture.size, picture.getpixel((0, picture.height - 1)))
    *_, end = ImageChops.difference(picture, bottom).getbbox()
    picture.crop((0, 0, picture.width, min(end + 10, picture.height))).save(file)


def calculators(folder: Path) -> list[Path]:
    """Photograph the two pages of docs/deploy.md, with a patient entered."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("the calculator is photographed by a browser: install chromium")
    gbsg2, mgus2 = load_dataset("gbsg2"), load_dataset("mgus2")
    tree = PrognosticTree(time_unit="days").fit(gbsg2.frame, gbsg2.y)
    causes = PrognosticTree(time_unit="months").fit(mgus2.frame, mgus2.y)
    words = {"title": "Recurrence of breast cancer", "outcome": "recurrence-free survival"}
    words |= {"labels": {"pnodes": "Positive lymph nodes"}, "units": {"age": "years", "tsize": "mm"}}
    cases = [
        (
            "calculator",
            tree,
            gbsg2,
            {"horizons": [365, 1095, 1826], **words},
            {"pnodes": "9", "progrec": "12"},
        ),
        (
            "calculator_causes",
            causes,
            mgus2,
            {"horizons": [60, 120], "title": "MGUS"},
            {"age": "65", "hgb": "11"},
        ),
    ]
    files = []
    for name, model, data, options, patient in cases:
        with tempfile.TemporaryDirectory() as scratch:
            page, file = Path(scratch) / "page.html", folder / f"{name}.png"
            export_calculator(model, page, data.frame, data.y, **options)  # type: ignore[arg-type]
            enter = "fields[model.columns.findIndex((column) => column.name === name)].value = text"
            script = f"for (const [name, text] of Object.entries({json.dumps(patient)})) {enter};\nshow();"
            page.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
            size = ["--window-size=1100,1640", "--force-device-scale-factor=0.8", "--hide-scrollbars"]
            command = [browser, "--headless", "--no-sandbox", "--disable-gpu", *size, f"--screenshot={file}"]
            subprocess.run([*command, page.as_uri()], check=True, capture_output=True, timeout=120)
            _without_bottom(file)
        files.append(_few_colours(file, 64))
    return files


def main() -> None:
    """Write all, and say what."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "_static"
    for file in [*draw(folder), *calculators(folder)]:
        print(f"{file}: {file.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
