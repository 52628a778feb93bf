"""Patterns that address values of a program.

| pattern | addresses |
| --- | --- |
| ``state/params/*/wq`` | inputs by pytree path; ``*``, ``?``, ``[..]`` in one step, ``**`` is any number of steps |
| ``out/0/**`` | outputs of the program, in the same way |
| ``@attn_out`` | intermediates by the tag given with ``checkpoint_name`` (globs allowed) |
| ``model.py:123`` | results of the ops written on that line; ``model.py:123/dot_general`` only of that primitive |
| ``src/model.py:123`` | the same; programs keep names of files without folders, so that any path of the file will do |
| ``model.py:120-140`` | results of the ops written on these lines (a primitive may follow here too) |
| ``dot_general`` | results of all ops of that primitive, where no input has that name |
| ``scope:attn`` | results of the ops inside of `jax.named_scope` or of a jitted function of that name (globs allowed) |
| ``scope:transpose(attn)`` | those of its derivative's backward pass, which the former leaves out |
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property

from autoshard.program.program import Op, Origin, Program

_LINE = re.compile(r"^(?P<file>[^@]*[^/@:]):(?P<line>\d{1,18})(?:-(?P<last>\d{1,18}))?(?:/(?P<kind>[^/]+))?$")
_SOURCE = re.compile(r"^(?P<file>.*?):(?P<line>\d+)\b")
_HERE = re.compile(r"^(\.{1,2}/)+")
_SCOPE = "scope:"
_STACK = re.compile(r" \[(?P<stack>[^\[\]]*)\]$")
_GLOB = re.compile(r"[*?\[]")
_WRAPPED = re.compile(r"^(?P<how>\w+)\((?P<what>.*)\)$")


def path_matches(pattern: str, path: str) -> bool:
    """Whether a path matches a glob, step by step.

    >>> path_matches("state/*/wq", "state/layer/wq"), path_matches("state/*", "state/layer/wq")
    (True, False)
    >>> path_matches("state/**", "state/layer/wq"), path_matches("**/wq", "state/layer/wq")
    (True, True)
    """
    if pattern == path:
        return True  # names may have characters that mean something in globs, such as [0]
    return _steps_match(tuple(pattern.split("/")), tuple(path.split("/")))


def _steps_match(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    # reachable[i]: the patterns read so far can have consumed the first i steps
    reachable = {0}
    for step in pattern:
        if step == "**":
            reachable = set(range(min(reachable), len(path) + 1)) if reachable else set()
        else:
            reachable = {i + 1 for i in reachable if i < len(path) and fnmatchcase(path[i], step)}
    return len(path) in reachable


@dataclass(frozen=True, slots=True)
class Match:
    """The values and outputs that a pattern addresses.

    values: value ids, ascending. outputs: output slots, ascending.
    any_rank: the pattern names a place in the source, whose ops may make values of other ranks too; only values of the
        stated rank are meant.
    """

    values: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    any_rank: bool = False

    def __bool__(self) -> bool:
        return bool(self.values or self.outputs)


@dataclass(frozen=True)
class Addresses:
    """Everything in a program that a pattern can address."""

    program: Program

    @cached_property
    def inputs(self) -> tuple[tuple[str, int], ...]:
        """Path and value id of every input and named constant."""
        args = self.program.body.args
        named = list(zip(self.program.input_names, args, strict=False))
        named += [
            (self.program.values[v].name, v)
            for v in args[len(named) :]
            if self.program.values[v].origin == Origin.CONST
        ]
        return tuple(named)

    @cached_property
    def _inputs_at(self) -> dict[str, tuple[int, ...]]:
        return _by_name(self.inputs)

    @cached_property
    def _outputs_at(self) -> dict[str, tuple[int, ...]]:
        return _by_name((name, slot) for slot, name in enumerate(self.program.output_names))

    @cached_property
    def tags(self) -> tuple[tuple[str, int], ...]:
        """Tag and value id of everything that is named with ``checkpoint_name``."""
        return tuple((tag, value.id) for value in self.program.values for tag in value.tags)

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """All ops, those inside of regions included."""
        return tuple(op for op, _ in self.program.walk())

    def find(self, pattern: str) -> Match:
        """The values and outputs that `pattern` addresses; empty where there are none."""
        pattern = pattern.strip()
        if pattern.startswith("@"):
            return Match(values=_ids(v for tag, v in self.tags if fnmatchcase(tag, pattern[1:])))
        glob = _GLOB.search(pattern) is not None  # a path is looked up: a state of many leaves has a pin for each
        if pattern == "out" or pattern.startswith("out/"):
            named = enumerate(self.program.output_names)
            slots = (k for k, name in named if path_matches(pattern, name)) if glob else self._outputs_at.get(pattern)
            return Match(outputs=tuple(slots or ()))
        if glob:
            values = _ids(v for name, v in self.inputs if path_matches(pattern, name))
        else:
            values = self._inputs_at.get(pattern, ())
        if values:
            return Match(values=values)
        ops = self._ops_of(pattern)
        return Match() if ops is None else Match(values=_ids(v for op in ops for v in op.results), any_rank=True)

    def _ops_of(self, pattern: str) -> list[Op] | None:
        """The ops of a scope, of lines of a file, or of a kind; None for a pattern that is none of these."""
        if pattern.startswith(_SCOPE):
            return [op for op in self.ops if _in_scope(op, pattern[len(_SCOPE) :])]
        line = _LINE.match(pattern)
        if line is not None:
            lines = range(int(line["line"]), int(line["last"] or line["line"]) + 1)
            kind = line["kind"] or "*"
            return [op for op in self.ops if _on_line(op, line["file"], lines) and fnmatchcase(op.kind, kind)]
        if "/" not in pattern and pattern not in ("*", "**"):
            return [op for op in self.ops if fnmatchcase(op.kind, pattern)]
        return None

    def hint(self, pattern: str) -> str:
        """A suggestion of what to write instead of a pattern that addresses nothing."""
        pattern = pattern.strip()
        if pattern.startswith("@"):
            known = sorted({tag for tag, _ in self.tags})
            near = get_close_matches(pattern[1:], known, n=3, cutoff=0.5)
            if near:
                return "did you mean " + _either(f"@{t}" for t in near) + "?"
            if known:
                return "the tags are " + _some(f"@{t}" for t in known)
            how = "from jax.ad_checkpoint import checkpoint_name"
            return f"the program has no tags; give one with `checkpoint_name` ({how})"
        if pattern.startswith(_SCOPE):
            known = sorted({name for op in self.ops for name in scopes(op.source)[0]})
            near = get_close_matches(pattern[len(_SCOPE) :], known, n=3, cutoff=0.5)
            if near:
                return "did you mean " + _either(f"{_SCOPE}{name}" for name in near) + "?"
            if known:
                return "the scopes are " + _some(known)
            return "the program has no scopes; name one with jax.named_scope, or with a jitted function"
        line = _LINE.match(pattern)
        if line is not None:
            return self._line_hint(line["file"], line["kind"])
        is_output = pattern == "out" or pattern.startswith("out/")
        names = list(self.program.output_names) if is_output else [name for name, _ in self.inputs]
        inside = [n for n in names if n.startswith(pattern.rstrip("/") + "/")]
        if inside:
            root = pattern.rstrip("/")
            return f"it is the beginning of {len(inside)} paths such as {inside[0]}; write {root}/** for all"
        near = get_close_matches(pattern, names, n=3, cutoff=0.6)
        if not near:
            last = pattern.rsplit("/", 1)[-1]
            near = [n for n in names if n.rsplit("/", 1)[-1] == last][:3]
        if not near:
            near = get_close_matches(pattern, names, n=3, cutoff=0.4)
        if near:
            return "did you mean " + _either(near) + "?"
        what = "outputs" if is_output else "inputs"
        return f"the {what} are " + _some(names) if names else f"the program has no {what}"

    def _line_hint(self, file: str, kind: str | None) -> str:
        lines_of: dict[str, set[int]] = {}
        kinds: set[str] = set()
        for op in self.ops:
            source = _SOURCE.match(op.source)
            if source is None:
                continue
            lines_of.setdefault(source["file"], set()).add(int(source["line"]))
            if kind and _same_file(source["file"], file):
                kinds.add(op.kind)
        lines = sorted({n for name, numbers in lines_of.items() if _same_file(name, file) for n in numbers})
        if not lines:
            return (
                "the ops come from " + _some(sorted(lines_of))
                if lines_of
                else "the ops of this program carry no source"
            )
        text = f"ops of {file} come from lines " + _some(map(str, lines), most=12)
        return text + (f" and are {_some(sorted(kinds), most=12)}" if kind else "")


def line_of(source: str) -> str:
    """File and line of an op's source, without the function and scopes behind them.

    >>> line_of("m.py:3 (f) [jvp(layer)]")
    'm.py:3'
    """
    match = _SOURCE.match(source)
    return f"{match['file']}:{match['line']}" if match else source


def _by_name(named: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    """The numbers of every name, ascending and once each."""
    out: dict[str, list[int]] = {}
    for name, number in named:
        out.setdefault(name, []).append(number)
    return {name: _ids(numbers) for name, numbers in out.items()}


def _ids(values) -> tuple[int, ...]:
    return tuple(sorted(set(values)))


def _same_file(named: str, wanted: str) -> bool:
    """Whether a source's file is the one that is wanted: either may be written with more folders than the other."""
    wanted = _HERE.sub("", wanted)
    return f"/{named}".endswith(f"/{wanted}") or f"/{wanted}".endswith(f"/{named}")


def _on_line(op: Op, file: str, lines: range) -> bool:
    source = _SOURCE.match(op.source)
    return source is not None and int(source["line"]) in lines and _same_file(source["file"], file)


def scopes(source: str) -> tuple[tuple[str, ...], bool]:
    """The scopes that an op was traced in, outermost first, and whether it is of a backward pass.

    >>> scopes("m.py:3 (f) [jvp(layer)/attn]"), scopes("m.py:3 (f) [transpose(jvp(attn))]")
    ((('layer', 'attn'), False), (('attn',), True))
    """
    stack = _STACK.search(f" {source}")
    names: list[str] = []
    transposed = False
    for step in _split(stack["stack"]) if stack else ():
        while (wrapped := _WRAPPED.match(step)) is not None:
            transposed |= wrapped["how"] == "transpose"
            step = wrapped["what"]
        names += [name for name in step.split("/") if name]
    return tuple(names), transposed


def _split(stack: str) -> list[str]:
    """Steps between the slashes that no bracket encloses."""
    depth, steps = 0, [""]
    for char in stack:
        depth += (char == "(") - (char == ")")
        if char == "/" and not depth:
            steps.append("")
        else:
            steps[-1] += char
    return steps


def _in_scope(op: Op, wanted: str) -> bool:
    back = wanted.startswith("transpose(") and wanted.endswith(")")
    names, transposed = scopes(op.source)
    name = wanted[len("transpose(") : -1] if back else wanted
    return transposed == back and any(fnmatchcase(step, name) for step in names)


def _either(names) -> str:
    names = list(names)
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _some(names, most: int = 6) -> str:
    names = list(names)
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
