"""A contract type for import-linter, named in pyproject.toml."""

from __future__ import annotations

from typing import Any

from importlinter import Contract, ContractCheck, fields, output


class PrivateModulesContract(Contract):
    """Modules named `_name` are imported inside their own package only.

    `dkvb.cli._shared` may be imported by `dkvb.cli` and the modules below it. `exceptions` lists
    private packages that all modules may import.
    """

    type_name = "private"

    exceptions = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        allowed: set[str] = set(self.exceptions or ())  # type: ignore[arg-type]
        illegal = sorted(
            f"{importer} -> {module}"
            for module in graph.modules
            for package in private_parents(module)
            if package not in allowed
            for importer in graph.find_modules_that_directly_import(module)
            if not is_inside(importer, package.rpartition(".")[0])
        )
        return ContractCheck(kept=not illegal, metadata={"illegal": illegal})

    def render_broken_contract(self, check: ContractCheck) -> None:
        output.print_error("Private modules are imported from outside their package:")
        for line in check.metadata["illegal"]:
            output.print_error(f"- {line}", bold=False)


def private_parents(module: str) -> list[str]:
    """Return the private packages and modules on the path to a module.

    >>> private_parents("dkvb.cli._shared"), private_parents("dkvb.cli.__main__")
    (['dkvb.cli._shared'], [])
    """
    parts = module.split(".")
    return [
        ".".join(parts[: depth + 1])
        for depth, part in enumerate(parts)
        if part.startswith("_") and not part.startswith("__")
    ]


def is_inside(module: str, package: str) -> bool:
    """Return whether a module is a package or lies below it."""
    return module == package or module.startswith(f"{package}.")
