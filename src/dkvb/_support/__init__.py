"""Internal helpers that every package may use: validation, files, memory, hashing."""
