"""Internal helpers that every package may use: validation, files, process groups, hashing."""
