"""What is on disk: altered files are refused, exported ones run without this package."""

import hashlib
import json
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from sstorch import (
    Columns,
    OptimalSurvivalTree,
    Penalties,
    SoftSurvivalTree,
    SurvivalData,
    SurvivalRegression,
    files,
)
from sstorch.deploy import export_program
from sstorch.exceptions import ConfigError, FormatError
from sstorch.reading import leaf_coefficients, leaf_table
from tests.causes import simulated

TREES = {
    "soft": SoftSurvivalTree(
        depth=1,
        leaf="spline_po",
        init="random",
        n_starts=2,
        columns=Columns({"age": "spline(3)"}, {"age": "log"}, interactions=[("age", "grade")]),
    ),
    "exact": OptimalSurvivalTree(2),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a saved tree of each kind, of rows with numbers, categories and missing values."""
    folder, (frame, y) = tmp_path_factory.mktemp("saved"), simulated(60)
    frame.loc[::9, "age"] = np.nan
    for name, tree in TREES.items():
        clone(tree).fit(frame, (y.time, y.event)).save(folder / name)
    return folder


def test_the_leaf_that_was_asked_for_is_kept(tmp_path: Path) -> None:
    """Intervals come from the training times; those of a later fit must not be limited by the first."""
    x, time = pd.DataFrame({"x": np.arange(96) % 5}), np.arange(96) % 4 + 1.0
    tree = SurvivalRegression(leaf="logistic_hazard").fit(x, (time, np.ones(96, dtype=bool)))
    tree.save(tmp_path / "tree")
    loaded = SurvivalRegression.load(tmp_path / "tree")
    np.testing.assert_array_equal(
        loaded.predict_survival_function(x, [1, 2.5, 9]), tree.predict_survival_function(x, [1, 2.5, 9])
    )
    later = (np.arange(96) % 24 + 1.0, np.ones(96, dtype=bool))
    again = clone(loaded).fit(x, later)
    assert again.module_.family.ends.shape[-1] == 24
    assert clone(tree).fit(x, later).objective_ == pytest.approx(again.objective_, rel=1e-6)


def test_all_that_a_prediction_needs_is_kept(saved: Path, tmp_path: Path) -> None:
    tree = SoftSurvivalTree.load(saved / "soft")
    assert tree.metrics_ == {}
    tree.metrics_ = {"cross_validated_c_harrell": 0.71}
    tree.save(tmp_path / "again")
    again = SoftSurvivalTree.load(tmp_path / "again")
    assert again.metrics_ == {"cross_validated_c_harrell": 0.71}
    ours, theirs = tree.module_.state_dict(), again.module_.state_dict()
    assert {"log_time_scale", "family.table", "family.ends"} <= set(ours)
    assert all((ours[key] == theirs[key]).all() for key in ours)
    pd.testing.assert_frame_equal(leaf_table(again), leaf_table(tree))
    pd.testing.assert_frame_equal(leaf_coefficients(again), leaf_coefficients(tree))


def _classes(layout: Any) -> set[str]:
    """Classes of a JSON form, each with its fields."""
    if not isinstance(layout, dict):
        return set().union(*map(_classes, layout)) if isinstance(layout, list) else set()
    own = {" ".join([*layout["$class"], *layout["fields"]])} if "$class" in layout else set()
    return own.union(*map(_classes, layout.values()))


def test_other_classes_are_another_version_of_the_format(saved: Path) -> None:
    """Files name classes by their modules: where one moves, or its fields change, FORMAT_VERSION rises."""
    for name, version, digest in (("soft", 14, 2431016755), ("exact", 12, 1191708156)):
        state = json.loads((saved / name / "model.json").read_text())
        found = "\n".join(sorted(_classes(state)))
        assert (state["format_version"], zlib.crc32(found.encode())) == (version, digest), found


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("file", ["model.json", "tensors.safetensors"])
def test_a_byte_that_is_flipped_anywhere_is_noticed(
    name: str, file: str, saved: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    load = type(TREES[name]).load
    shutil.copytree(saved / name, folder)
    whole = (folder / file).read_bytes()
    rng = np.random.default_rng(0)
    for at in np.unique(np.r_[0, 1, len(whole) - 1, rng.integers(0, len(whole), 100)]):
        altered = bytearray(whole)
        altered[at] ^= 1 << int(rng.integers(8))
        (folder / file).write_bytes(altered)
        with pytest.raises(FormatError):
            load(folder)
    for length in (0, 1, 8, len(whole) // 2, len(whole) - 1):
        (folder / file).write_bytes(whole[:length])
        with pytest.raises(FormatError):
            load(folder)
    (folder / file).write_bytes(whole + b"\n")
    with pytest.raises(FormatError):
        load(folder)
    (folder / file).write_bytes(whole)
    load(folder)


def _forged(saved: Path, folder: Path, tensors: bytes | None = None, **changes: object) -> Path:
    """A folder whose checksums fit although its content was changed."""
    state = json.loads((saved / "soft" / "model.json").read_text()) | changes
    blob = (saved / "soft" / "tensors.safetensors").read_bytes() if tensors is None else tensors
    state["tensors_sha256"] = hashlib.sha256(blob).hexdigest()
    del state["state_sha256"]
    content = json.dumps(state, sort_keys=True).encode()
    state["state_sha256"] = hashlib.sha256(content).hexdigest()
    folder.mkdir(exist_ok=True)
    (folder / "model.json").write_bytes(files._text(state))
    (folder / "tensors.safetensors").write_bytes(blob)
    return folder


def test_forged_files_do_no_harm(saved: Path, tmp_path: Path) -> None:
    SoftSurvivalTree.load(_forged(saved, tmp_path))
    huge = struct.pack("<Q", 2**62) + b"{}"
    outside = json.dumps({"../x": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]}}).encode()
    for blob in (huge, struct.pack("<Q", len(outside)) + outside, b""):
        with pytest.raises(FormatError, match="incomplete or altered"):
            SoftSurvivalTree.load(_forged(saved, tmp_path, tensors=blob))
    whole = json.loads((saved / "soft" / "model.json").read_text())["tree"]
    system = {"$class": ["os", "system"], "fields": {}}
    for changes in (
        {"leaves": [{"cause": "event", "name": "../../etc/passwd", "options": {}}]},
        {"leaves": [{"cause": "event", "name": "weibull", "options": {}}]},
        {"leaves": ["os.system"]},
        {"leaves": []},
        {"tree": {**whole, "fields": {**whole["fields"], "groups": {"$array": "array 99"}}}},
        {"tree": {**whole, "fields": {**whole["fields"], "event_times": "now"}}},
        {"tree": {**whole, "fields": {**whole["fields"], "preprocessor": system}}},
        {"tree": system},
        {"depth": 10**9},
        {"parameters": {"depth": 1, "path": "/"}},
        {"fitted": {}},
        {"fitted": {"outcome_type_": {"$array": "array 99"}}},
    ):
        with pytest.raises(FormatError, match="incomplete or altered"):
            SoftSurvivalTree.load(_forged(saved, tmp_path, **changes))
    (tmp_path / "model.json").write_bytes(b"[" * 200_000)
    with pytest.raises(FormatError, match="incomplete or altered"):
        SoftSurvivalTree.load(tmp_path)
    with pytest.raises(FormatError, match="version 99; this version of sstorch reads"):
        SoftSurvivalTree.load(_forged(saved, tmp_path, format_version=99))
    with pytest.raises(FormatError, match="holds no saved tree"):
        SoftSurvivalTree.load(tmp_path / "nothing")


def test_failed_exports_raise_and_leave_files_as_they_were(
    small_data: SurvivalData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = SurvivalRegression("weibull").fit(small_data.frame, small_data.y)
    with pytest.raises(ConfigError, match="cannot be written"):
        export_program(tree, tmp_path / "no" / "such" / "folder" / "tree.pt2")
    before = tmp_path / "before.pt2"
    before.write_text("an earlier export")

    def interrupted(program: object, file: BinaryIO, **more: object) -> None:
        file.write(b"half of it")
        raise RuntimeError("numel: integer multiplication overflow")

    monkeypatch.setattr(torch.export, "save", interrupted)
    with pytest.raises(ConfigError, match=r"cannot serialize .* weibull .*numel"):
        export_program(tree, before)
    assert list(tmp_path.iterdir()) == [before]
    assert before.read_text() == "an earlier export"


class Narrow(SurvivalRegression):
    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__("weibull", penalties=Penalties(ridge=0.1))
        self.alpha = alpha


class NarrowExact(OptimalSurvivalTree):
    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(max_depth=1)
        self.alpha = alpha


@pytest.mark.parametrize("kind", [Narrow, NarrowExact])
def test_subclass_with_another_constructor_is_loaded(
    kind: Any, small_data: SurvivalData, tmp_path: Path
) -> None:
    model = kind(alpha=3.0).fit(small_data.frame, small_data.y)
    model.save(tmp_path)
    loaded = kind.load(tmp_path)
    assert loaded.alpha == 3.0
    assert np.array_equal(loaded.predict(small_data.frame), model.predict(small_data.frame))
    again = loaded.fit(small_data.frame, small_data.y)
    assert np.array_equal(again.predict(small_data.frame), model.predict(small_data.frame))
