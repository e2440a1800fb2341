"""The arithmetic: one protocol, its reference in NumPy and its native implementation in C++."""
