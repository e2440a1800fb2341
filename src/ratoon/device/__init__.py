"""The arithmetic: everything that touches arrays and the native library."""
