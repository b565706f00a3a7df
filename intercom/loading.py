"""Load modules without what they would bring along for nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


@contextmanager
def without(name: str) -> Iterator[None]:
    """Let imports in the block do without an optional module, as if it were not installed, unless it is there already.

    Only for a process of our own: what is imported in the block does without it for good. After the block the module
    itself can be imported as ever.
    """
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # how the import system marks "not there"
    try:
        yield
    finally:
        del sys.modules[name]


class _Later(ModuleType):
    """Stand in for a module, and load it when something is asked for that is not given."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def later(name: str, **members: Any) -> Iterator[None]:
    """Let imports in the block have a module that is only loaded when it is used, unless it is there already.

    ``members`` are what is used at once, or is to be used in place of what the module has. Only for a process of our
    own: what is imported in the block keeps the stand-in. After the block the module itself can be imported as ever.
    """
    if name in sys.modules:
        yield
        return
    stand_in = _Later(name)
    vars(stand_in).update(members)
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]
