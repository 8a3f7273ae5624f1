"""Values in files and back, without pickle; files that appear whole or not at all."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sstorch.data import Schema
from sstorch.data.encodings import Encodings
from sstorch.data.surv import OutcomeType
from sstorch.exceptions import FormatError
from sstorch.files import write_whole
from sstorch.packing import layout_of, pack, unpack, value_of


def test_values_come_back_bit_for_bit() -> None:
    value = {
        "numbers": (1, 0.1, float("inf"), None, True),
        "arrays": [np.arange(6.0).reshape(2, 3)[:, ::2], np.array(["ü", "abc"]), np.zeros((0, 2))],
        "tensor": torch.tensor([0.1, 2.0]),
        "objects": {3: Schema(("a", "b"), {"b": ("x", "y")}), "$key": OutcomeType(causes=("one", "two"))},
        "nested": Encodings(),
    }
    again = unpack(pack(value))
    for name in ("numbers", "objects", "nested"):
        assert again[name] == value[name]
    for one, other in zip(again["arrays"], value["arrays"], strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    assert torch.equal(again["tensor"], value["tensor"])
    assert np.isnan(unpack(pack(np.nan)))
    plain = {"depth": 2, "names": ["a", "b"], "by": {"x": 1.5}}
    arrays: dict[str, Any] = {}
    assert json.loads(json.dumps(layout_of(plain, arrays))) == plain  # stays readable
    assert not arrays
    with pytest.raises(TypeError, match=r"builtins.set cannot be kept in a file"):
        pack({1, 2})


@pytest.mark.parametrize(
    "layout",
    [
        {"$class": ["os", "system"], "fields": {}},
        {"$class": ["sstorch.packing", "pack"], "fields": {}},
        {"$class": ["sstorch.data.columns", "Schema"], "fields": {"other": 1}},
        {"$array": "array 7"},
        {"$unknown": 1},
    ],
)
def test_altered_layouts_raise(layout: Any) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        value_of(layout, {})
    text = np.frombuffer(json.dumps(layout).encode(), dtype=np.uint8)
    with pytest.raises(FormatError, match="incomplete or of another version"):
        unpack({"layout": text})


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_file_that_cannot_be_written_leaves_what_was_there(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    for content in (b"first", memoryview(b"old")):
        write_whole(path, content)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'$"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
