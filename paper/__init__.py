"""The paper's experiments, the claims they decide, and the page of results.

    python -m paper list
    python -m paper run toy --quick
    python -m paper report results

Träuble et al., Discrete Key-Value Bottleneck, ICML 2023. Every experiment is a client of `dkvb`.
"""
