"""The compiled search: additive tasks on the CPU, all budgets at once, in machine code.

numba is loaded by :mod:`sstorch.exact.compiled.search` when a search needs it first.
"""
