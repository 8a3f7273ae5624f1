"""The compiled engine: the decomposition on the CPU, one tree at a time, a pass over its nodes a call."""
