"""Options that take one value are given once: of two, the last would win without a word."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

from dkvb.cli._shared import clear_errors


class _Flags:
    """A flag takes no value, so help names no type for it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, as ever."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class Group(_Flags, TyperGroup):
    """Commands of one name."""


class Once(_Flags, TyperCommand):
    """A command that refuses an option given twice, unless it is a flag or takes many values."""

    def __init__(self, *given: Any, help: str | None = None, **named: Any) -> None:
        # Lines of a docstring are joined: help has the terminal's width, and breaks them anew.
        paragraphs = (help or "").split("\n\n")
        joined = "\n\n".join(" ".join(one.split()) for one in paragraphs)
        super().__init__(*given, help=joined, **named)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What the command was given, as ever."""
        # A parser of its own, which says in which order it met the parameters, and how often.
        _, _, met = self.make_parser(ctx).parse_args(args=list(args))
        with clear_errors():
            for param in met:
                times = sum(other is param for other in met)
                if times > 1 and _takes_one_value(param):
                    often = "twice" if times == 2 else f"{times} times"
                    raise ValueError(
                        f"{max(param.opts, key=len)}: expected once; got it {often}; leave out "
                        "all but one"
                    )
        return super().parse_args(ctx, args)


def _takes_one_value(param: Any) -> bool:
    is_option = param.param_type_name == "option"
    return is_option and not (param.multiple or param.is_flag or param.count)
