"""How fast, in how little memory, and compared with what: `python -m benchmarks --help`."""
