"""Values in files and back, without pickle."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from sstorch.data import Schema
from sstorch.data.encodings import Encodings
from sstorch.data.surv import OutcomeType
from sstorch.exceptions import FormatError
from sstorch.packing import layout_of, pack, unpack, value_of


def test_values_come_back_bit_for_bit() -> None:
    value = {
        "numbers": (1, 0.1, float("inf"), None, True),
        "arrays": [
            np.arange(6.0).reshape(2, 3)[:, ::2],
            np.array(["ü", "abc"]),
            np.zeros((0, 2)),
        ],
        "tensor": torch.tensor([0.1, 2.0]),
        "objects": {3: Schema(("a", "b"), {"b": ("x", "y")}), "$key": OutcomeType(causes=("one", "two"))},
        "nested": Encodings(),
    }
    again = unpack(pack(value))
    assert again["numbers"] == value["numbers"]
    for one, other in zip(again["arrays"], value["arrays"], strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    assert torch.equal(again["tensor"], value["tensor"])
    assert again["objects"] == value["objects"]
    assert again["nested"] == value["nested"]
    assert np.isnan(unpack(pack(np.nan)))


def test_plain_mappings_stay_readable() -> None:
    arrays: dict[str, Any] = {}
    plain = {"depth": 2, "names": ["a", "b"], "by": {"x": 1.5}}
    assert json.loads(json.dumps(layout_of(plain, arrays))) == plain
    assert not arrays


@pytest.mark.parametrize(
    "layout",
    [
        {"$class": ["os", "system"], "fields": {}},
        {"$class": ["sstorch.packing", "pack"], "fields": {}},
        {"$class": ["sstorch.data.schema", "Schema"], "fields": {"other": 1}},
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


def test_other_objects_raise() -> None:
    with pytest.raises(TypeError, match=r"builtins.set cannot be kept in a file"):
        pack({1, 2})
