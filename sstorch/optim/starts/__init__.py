"""Initial solutions: clusters of rows, hard trees, trees grown level by level, Cox models."""

from sstorch.optim.starts.clusters import initialize_kmeans, initialize_random, problem_seed
from sstorch.optim.starts.cox import initialize_cox
from sstorch.optim.starts.grown import initialize_grown
from sstorch.optim.starts.hard import HardTree, greedy_tree, initialize_greedy, initialize_hard

__all__ = [
    "HardTree",
    "greedy_tree",
    "initialize_cox",
    "initialize_greedy",
    "initialize_grown",
    "initialize_hard",
    "initialize_kmeans",
    "initialize_random",
    "problem_seed",
]
