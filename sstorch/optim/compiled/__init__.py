"""The compiled engine: the decomposition on the CPU, one tree at a time, a pass over its nodes in one call.

numba is loaded by :mod:`sstorch.optim.compiled.trees` when a run needs it first.
"""
