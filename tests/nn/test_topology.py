import pytest

from sstorch.exceptions import ConfigError
from sstorch.nn import Topology


@pytest.mark.parametrize("depth", range(7))
def test_counts_and_paths(depth: int) -> None:
    tree = Topology(depth)
    assert len(tree.branches) == 2**depth - 1
    assert len(tree.leaves) == 2**depth
    for leaf in tree.leaves:
        path = tree.ancestors(leaf)
        assert len(path) == depth == tree.level(leaf)
        node = 1
        for gate, left in path:
            assert gate == node
            node = 2 * node + (0 if left else 1)
        assert node == leaf


def test_subtrees() -> None:
    tree = Topology(3)
    assert tree.branches_under(2) == [2, 4, 5]
    assert tree.leaves_under(2) == [8, 9, 10, 11]
    assert tree.leaves_under(3) == [12, 13, 14, 15]
    assert tree.branches_under(9) == []
    assert tree.leaves_under(9) == [9]
    assert Topology(0).leaves_under(1) == [1]


@pytest.mark.parametrize("depth", [-1, 7, 2.0, True, "2"])
def test_refused(depth: object) -> None:
    with pytest.raises(ConfigError, match="integer from 0 to 6"):
        Topology(depth)  # type: ignore[arg-type]
