"""How values learn from codes and labels: one rule a module, each a state and functions over it."""
