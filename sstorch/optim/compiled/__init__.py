"""The compiled engine: training on the CPU, one problem at a time, all of a visit of a node in one call.

numba is loaded by :mod:`sstorch.optim.compiled.problems` when a run needs it first.
"""
