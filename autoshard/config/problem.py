"""From a config to its workload: a function, its abstract arguments and their names."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autoshard.config.by_name import by_name
from autoshard.config.load import Config
from autoshard.config.schema import is_leaf, parse_leaf
from autoshard.config.workload import Workload
from autoshard.constraints import Kernel
from autoshard.constraints.kernel import KIND as KERNEL
from autoshard.errors import AutoshardError, InputError, listing
from autoshard.trust import refusal


@contextmanager
def told_of_tracing(config: Config, name: str) -> Iterator[None]:
    """Around a trace of the function of a config: what the user's code raises becomes an `InputError`."""
    try:
        yield
    except AutoshardError:
        raise
    except (Exception, SystemExit) as error:  # what the user's function does with these arguments
        key = "function" if config.settings.function is not None else "model"
        raise InputError(
            f"{config.place(key)}: {key}: {name} cannot be traced with these arguments: {type(error).__name__}: {error}"
        ) from error


def build_problem(config: Config) -> Workload:
    """Build the model, or import the function, that a config names. Imports JAX and the user's code.

    `InputError` for the config in a plan by somebody else that names code, whatever it is to be imported for.
    """
    if not config.trusted and (named := code_named(config)):
        raise refusal(named[0], config.directory, config.file)
    if config.model is not None:
        from autoshard.models import build

        try:
            program = build(config.model.name, dims=config.model.dims, **config.model.options)
        except InputError as error:
            raise InputError(f"{config.place('model')}: model: {error}") from None
        name = config.model.name + (f" {config.model.dims}" if config.model.dims else "")
        return Workload(name, program.step, program.specs, program.argnames, program.donate_argnums, program)
    settings = config.settings
    if settings.model_file is not None:
        from autoshard.config.onnx_model import problem_of

        return problem_of(config)
    assert settings.function is not None
    function = _callable(settings.function, config, "function")
    names = tuple(settings.argnames) if settings.argnames is not None else None
    if settings.specs is not None:
        specs = _call_specs(settings.specs, config)
        if isinstance(specs, Mapping):
            if names is not None:
                raise InputError(f"{config.place('argnames')}: argnames: {settings.specs}() names its arguments itself")
            told = f"{config.place('specs')}: specs: {settings.specs}()"
            function, names = by_name(function, tuple(specs), lambda *_: told)
            specs = tuple(specs[name] for name in names)
        if names is not None and len(names) != len(specs):
            raise InputError(
                f"{config.place('argnames')}: argnames: {len(names)} names for the {len(specs)} arguments of 'specs'"
            )
    elif isinstance(settings.args, Mapping):
        function, names = by_name(function, tuple(settings.args), lambda *name: f"{config.place('args', *name)}: args")
        specs = tuple(_spec(settings.args[name]) for name in names)
    else:
        specs = tuple(_spec(tree) for tree in settings.args)
    from autoshard.frontends.jax.function import argument_names

    arguments = argument_names(function, len(specs), names)
    return Workload(settings.function, function, specs, names, _donated(config, arguments, len(specs)))


def import_reference(reference: str, directory: Path) -> Any:
    """The object that ``module:function`` names; `InputError` says which part could not be found.

    Modules are looked for in `directory` (that of the config) and the working directory first.
    """
    module_name, _, attributes = reference.partition(":")
    for folder in (str(Path.cwd()), str(directory)):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        target = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(missing + "."):
            hint = ""
            if module_name.endswith(".py"):
                hint = f"; a module is named as in an import, {module_name[:-3].replace('/', '.')}:{attributes}"
            raise InputError(
                f"there is no module {missing!r} (looked in {directory}, the working directory "
                f"and the installed packages){hint}"
            ) from None
        raise InputError(f"module {module_name!r} cannot be imported: it needs {missing!r}, which is missing") from None
    except SystemExit as stop:
        raise InputError(f"module {module_name!r} ends the process when imported (exit code {stop.code})") from stop
    except Exception as error:  # whatever the user's module does at import
        raise InputError(f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}") from error
    for attribute in attributes.split("."):
        if not hasattr(target, attribute):
            public = [n for n in vars(target) if not n.startswith("_")] if hasattr(target, "__dict__") else []
            raise InputError(f"module {module_name!r} has no {attribute!r}; {listing(attribute, public, most=12)}")
        target = getattr(target, attribute)
    return target


def code_named(config: Config) -> list[str]:
    """All that a config says is to be imported: its function, that of its arguments, what devices run for kernels."""
    settings = config.settings
    kernels = (entry.local for entry in settings.statements_of(KERNEL))
    return [named for named in (settings.function, settings.specs, *kernels) if named is not None]


def imported_locals(stated: Mapping[int, Any], directory: Path) -> dict[int, Any]:
    """What a device runs in the place of kernels, by op: functions, those that are stated by name imported.

    For what the user at hand stated, and plans that are trusted. Raises `InputError` where a function is not found.
    """
    return {op: _local(local, directory) if isinstance(local, str) else local for op, local in stated.items()}


def _local(reference: str, directory: Path) -> Any:
    try:
        function = import_reference(reference, directory)
    except InputError as error:
        raise InputError(f"kernels: local: {error}") from error.__cause__
    if not callable(function):
        raise InputError(f"kernels: local: {reference} is a {type(function).__name__}, not a function")
    return function


def check_locals(config: Config) -> None:
    """Raise `InputError` where a function that a device is to run in the place of a kernel cannot be imported."""
    for statement in config.statements:
        if isinstance(statement, Kernel) and isinstance(statement.local, str):
            try:
                _local(statement.local, config.directory)
            except InputError as error:
                raise InputError(f"{statement.source}: {statement.name}: {error}") from error.__cause__


def _callable(reference: str, config: Config, key: str) -> Callable[..., Any]:
    try:
        function = import_reference(reference, config.directory)
    except InputError as error:
        raise InputError(f"{config.place(key)}: {key}: {error}") from error.__cause__
    if not callable(function):
        raise InputError(f"{config.place(key)}: {key}: {reference} is a {type(function).__name__}, not a function")
    return function


def _call_specs(reference: str, config: Config) -> tuple[Any, ...] | Mapping[str, Any]:
    function = _callable(reference, config, "specs")
    try:
        specs = function()
    except (Exception, SystemExit) as error:  # the user's code
        raise InputError(
            f"{config.place('specs')}: specs: calling {reference}() failed: {type(error).__name__}: {error}"
        ) from error
    if isinstance(specs, Mapping) and specs and all(isinstance(name, str) for name in specs):
        return specs
    if not isinstance(specs, tuple | list):
        raise InputError(
            f"{config.place('specs')}: specs: {reference}() must return a tuple with one pytree for each argument, or "
            f"a mapping of them by name, found a {type(specs).__name__}"
        )
    return tuple(specs)


def _spec(tree: Any) -> Any:
    from autoshard.interop.abstract import shape_dtype

    if isinstance(tree, str) or (isinstance(tree, Mapping) and is_leaf(tree)):
        return shape_dtype(*parse_leaf(tree))
    if isinstance(tree, Mapping):
        return {key: _spec(item) for key, item in tree.items()}
    return [_spec(item) for item in tree]


def _donated(config: Config, names: Sequence[str], count: int) -> tuple[int, ...] | None:
    """Numbers of the donated arguments; None where the config says nothing, and a `jit` around the function does."""
    from autoshard.models.options import listing

    if config.settings.donate is None:
        return None
    positions = []
    for index, argument in enumerate(config.settings.donate):
        if isinstance(argument, str):
            if argument not in names:
                raise InputError(
                    f"{config.place('donate', index)}: donate[{index}]: no argument {argument!r} to donate; "
                    f"{listing(argument, names)}"
                )
            number = names.index(argument)
        else:
            number = argument
        if not isinstance(number, int) or number >= count:
            raise InputError(
                f"{config.place('donate', index)}: donate[{index}]: there is no argument number {number}; "
                f"they are 0 to {count - 1}"
            )
        positions.append(number)
    return tuple(sorted(set(positions)))
