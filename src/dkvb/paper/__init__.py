"""The paper's figures and tables: one module each, and each a client of the public API."""

EXPERIMENTS: dict[str, str] = {
    "toy": "Figure 2: eight classes in the plane, two at a time; who forgets (about 20 seconds)",
}
