"""The custom kernels of a program: which rule each call has, and the program with these rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autoshard.constraints.kernel import DEFAULT, REPLICATE, Kernel, MatchedKernel
from autoshard.constraints.patterns import line_of
from autoshard.errors import InputError, RuleError, listing
from autoshard.program.program import Block, Op, Program
from autoshard.program.rule import ShardingRule, rule_from_text
from autoshard.rules.build import Call
from autoshard.rules.kernels import (
    CALLED_KERNELS,
    FROM_ESTIMATE,
    cut_grid_dimensions,
    formula_value,
    grid_rule,
    shardy_rule,
    text_rule,
)
from autoshard.rules.shipped_kernels import CALLED, shipped_rule, shipped_work, whole_rule_only

NO_WORK = {"flop": None, "transcendentals": 0.0, "bytes": None, "unit": "matmul", "from": "nothing"}


@dataclass(frozen=True)
class KernelRules:
    """The kernels of a program. statements: one for each call. locals: what a device runs, by op, as it is
    stated: a function, or the name of one. notes: for people.
    """

    statements: tuple[MatchedKernel, ...]
    locals: Mapping[int, Any]
    notes: tuple[str, ...]


def match_kernels(stated: Sequence[Kernel], program: Program) -> KernelRules:
    """Find the rule, the work and the local function of every kernel of a program.

    Raises `RuleError` where no entry of its name fits a call, and for a kernel without a rule; `InputError` for an
    entry whose kernel, or one of whose calls, the program does not have.
    """
    read = {v for op, _ in program.walk() for v in op.operands} | set(program.body.results)
    read |= {v for op, _ in program.walk() for region in op.regions for v in region.results}
    statements: list[MatchedKernel] = []
    functions: dict[int, Any] = {}
    notes: dict[str, None] = {}
    calls: dict[str, int] = {}
    reached: dict[int, int] = {}  # of entries, by their ids: how many calls of one kernel there are
    missing: dict[str, str] = {}
    for op, outer in program.walk():
        facts = op.attrs.get("kernel")
        if facts is None:
            continue
        number = calls.get(facts["name"], 0)
        calls[facts["name"]] = number + 1
        entries = [e for e in stated if e.name != DEFAULT and e.names(facts, number)]
        reached |= {id(e): max(number + 1, reached.get(id(e), 0)) for e in stated if e.is_of(facts)}
        call = _OneCall(op, facts, program, [k for k, v in enumerate(op.results) if v not in read])
        matched = call.found(entries, any(e.name == DEFAULT for e in stated), any(o.kind == "shard_map" for o in outer))
        if matched is None:
            missing.setdefault(facts["name"], call.what_to_write())
            continue
        statements.append(matched)
        notes.update(dict.fromkeys(call.notes))
        if (entry := call.entry) is not None and entry.local is not None:
            functions[op.id] = entry.local
    named = [e for e in stated if e.name != DEFAULT]
    idle = [text for e in named if (text := _speaks_of_nothing(e, calls, reached.get(id(e), 0)))]
    if missing or idle:
        raise (RuleError if missing else InputError)("\n".join((*idle, *missing.values())))
    return KernelRules(tuple(statements), functions, tuple(notes))


def _speaks_of_nothing(entry: Kernel, calls: Mapping[str, int], reached: int) -> str:
    """What to say of an entry whose kernel the program does not have, or one of its calls; empty where it has all."""
    where = f"{entry.source or entry.written}: " if entry.source or entry.written else ""
    if reached:
        beyond = [number for number in entry.calls if number not in range(reached)]
        last = "call 0 alone" if reached == 1 else f"calls 0 to {reached - 1}"
        return f"{where}{entry}: calls names {beyond[0]!r}; the program has {last} of it" if beyond else ""
    known = listing(entry.name, sorted(calls)) if calls else "it has no custom kernel"
    return f"{where}{entry} speaks of no kernel of the program; {known}"


def called_names(stated: Any) -> tuple[str, ...]:
    """The names of kernels that may be jitted functions of the program: those for which a device runs a function."""
    statements = stated if isinstance(stated, list | tuple) else (stated,)
    kernels = (s for s in statements if isinstance(s, Kernel) and s.local is not None)
    return tuple(kernel.name for kernel in kernels if not set(kernel.name) & set(":*?["))


def kernels_in(program: Program) -> tuple[str, ...]:
    """The names of the custom kernels of a program, each once."""
    return tuple(dict.fromkeys(op.attrs["kernel"]["name"] for op, _ in program.walk() if "kernel" in op.attrs))


def called_in(program: Program) -> tuple[str, ...]:
    """The names of the jitted functions that are kernels of a program."""
    names = (op.attrs["kernel"]["name"] for op, _ in program.walk() if op.kind in CALLED_KERNELS)
    return tuple(dict.fromkeys(names))


class _OneCall:
    """One call of a kernel. entry: that which says how it is cut, once found. notes: what to tell of it."""

    def __init__(self, op: Op, facts: Mapping[str, Any], program: Program, unread: Sequence[int]) -> None:
        self.op, self.facts, self.unread = op, facts, unread
        operands, results = (tuple(program.type_of(v) for v in vs) for vs in (op.operands, op.results))
        self.call = Call(f"kernel {facts['name']}", operands, results, {})
        self.where = f" at {op.source}" if op.source else ""
        self.entry: Kernel | None = None
        self.notes: list[str] = []

    def found(self, entries: Sequence[Kernel], permitted: bool, is_local: bool) -> MatchedKernel | None:
        """The statement about the call; None where nothing says how it may be cut."""
        sizes: dict[str, int] = {}
        rule, by, local = None, "", None
        saying = [e for e in entries if e.says_how or (e.local is not None and self.facts["name"] in CALLED)]
        if saying:
            rule, sizes = self._stated(saying)
            by, local = "stated", None if self.entry is None else self.entry.local_name
        elif is_local:
            by = "inside of a shard_map"  # its work is priced, nothing cuts it
        else:
            rule, sizes, by = self._own()
            if rule is None and permitted:
                rule, by = self.call.conservative(), "permitted by the default"
        if rule is None and not is_local:
            return None
        if rule is not None and not is_local:
            self._tell_whole(rule, by)
            if self.entry is not None and self.entry.local is None and "numbered" in self.facts:
                self._tell_numbers(rule)
        return MatchedKernel(
            self.facts["name"], self.op.id, None if rule is None or is_local else rule.to_text(),
            self._work(entries, sizes), None if is_local else local, by,
            self.entry.source if self.entry is not None else line_of(self.op.source),
        )  # fmt: skip

    def _stated(self, entries: Sequence[Kernel]) -> tuple[ShardingRule, dict[str, int]]:
        reasons = []
        for entry in entries:
            try:
                values = self._of(entry)
            except RuleError as error:
                reasons.append(f"{entry.source or entry.written}: {error}")
                continue
            self.entry = entry
            return values
        raise RuleError(f"{self.call}{self.where}: no entry for it fits\n  " + "\n  ".join(reasons))

    def _of(self, entry: Kernel) -> tuple[ShardingRule, dict[str, int]]:
        if entry.rule == REPLICATE:
            return self.call.conservative(), {}
        if not entry.says_how:  # local= alone, for a function whose rule is shipped
            text, whole, _ = CALLED[self.facts["name"]]
            return text_rule(self.call, self.facts["name"], text, whole=whole)
        if entry.grid is not None:
            return grid_rule(self.call, self.facts, entry.grid, self.unread), {}
        return text_rule(
            self.call, self.facts["name"], entry.rule, reduction=tuple(entry.reduction),
            whole=tuple(entry.whole), facts=self.facts if entry.local is None else None,
        )  # fmt: skip

    def _own(self) -> tuple[ShardingRule | None, dict[str, int], str]:
        """The rule that the kernel itself has, or one that is shipped."""
        if self.facts.get("rule") is not None:
            return *shardy_rule(self.call, self.facts), "its sharding_rule"
        return shipped_rule(self.call, self.facts, self.unread), {}, "shipped"

    def _tell_whole(self, rule: ShardingRule, by: str) -> None:
        name = self.facts["name"]
        if by.startswith("permitted"):
            self.notes.append(f"kernel {name}{self.where} has no rule and runs whole on every device, as permitted")
        elif by == "shipped" and whole_rule_only(self.facts):
            self.notes.append(
                f"kernel {name}{self.where} runs whole on every device: it computes with the sizes of whole arrays; a "
                "rule with local= can cut it"
            )
        elif by == "shipped" and not rule.shardable:
            self.notes.append(f"kernel {name}{self.where} runs whole on every device: nothing of it can be cut")

    def _tell_numbers(self, rule: ShardingRule) -> None:
        """What may come out otherwise where a device runs a part of the grid: its numbers count from 0."""
        cut = sorted(set(self.facts["numbered"]) & set(cut_grid_dimensions(rule, self.facts)))
        if cut:
            self.notes.append(
                f"kernel {self.facts['name']}{self.where} reads the number of its program along grid dimension "
                f"{cut[0]}, which counts from 0 on every device where that is cut; autoshard verify compares results"
            )

    def _work(self, entries: Sequence[Kernel], sizes: dict[str, int]) -> dict[str, Any]:
        """FLOP and bytes: as stated, else as the kernel says, else as shipped. Tells what is not known."""
        own = self.facts["work"]
        if own is None or own["from"] != FROM_ESTIMATE:
            own = shipped_work(self.call, self.facts) or self._called_work(sizes) or own
        work = dict(own or NO_WORK)
        saying = [*([] if self.entry is None else [self.entry]), *(e for e in entries if not e.says_how)]
        for what in ("flop", "bytes"):
            stated = next((value for e in saying if (value := getattr(e, what)) is not None), None)
            if stated is not None:
                work[what] = formula_value(stated, sizes, f"kernel {self.facts['name']}: {what}")
                work["from"] = "stated"
        work["unit"] = next((e.unit for e in saying if e.unit), work["unit"])
        if work["flop"] is None:
            self.notes.append(
                f"the FLOP of kernel {self.facts['name']}{self.where} are not known and are not priced, only its bytes "
                "are; state flop="
            )
        return work

    def _called_work(self, sizes: Mapping[str, int]) -> dict[str, Any] | None:
        """The shipped work of a jitted function; None where none is shipped, or another rule is stated."""
        name = self.facts["name"]
        if name not in CALLED or not sizes or self.entry is None or self.entry.says_how:
            return None
        return {**NO_WORK, "flop": formula_value(CALLED[name][2], sizes, name), "from": "a shipped formula"}

    def what_to_write(self) -> str:
        """The message about a kernel without a rule."""
        name = self.facts["name"]
        letters = iter("abcdefghijklmnopqrstuvwxyz" * 9)
        sides = [
            ", ".join("[" + ", ".join(next(letters) if n > 1 else "_" for n in t.shape) + "]" for t in side)
            for side in (self.call.operands, self.call.results)
        ]
        parallel = list(self.facts.get("parallel", ()))
        grid = (
            f", or grid={parallel or [0]} where programs along these dimensions of its grid "
            f"{self.facts['grid']} do not depend on each other"
            if "grid" in self.facts
            else ""
        )
        return (
            f"{self.call}{self.where} has no sharding rule, and would run whole on every device. Write "
            f"autoshard.Kernel({name!r}, rule=...) among the constraints (kernels: in a config), with one letter for "
            f"all dimensions that are cut together in ({sides[0]})->({sides[1]}){grid}; or permit it: "
            f"rule='{REPLICATE}', for all kernels autoshard.Kernel('{DEFAULT}', rule='{REPLICATE}')"
        )


def with_kernels(program: Program, statements: Sequence[MatchedKernel]) -> Program:
    """The program whose kernels have the rules and the work of the statements about them."""
    said = {statement.op: statement for statement in statements}
    if not said:
        return program

    def block(old: Block) -> Block:
        return replace(old, ops=tuple(one(op) for op in old.ops))

    def one(op: Op) -> Op:
        op = replace(op, regions=tuple(block(region) for region in op.regions)) if op.regions else op
        statement = said.get(op.id)
        if statement is None:
            return op
        attrs = {**op.attrs, "work": dict(statement.work), "local": statement.local}
        if statement.rule is None:
            return replace(op, attrs=attrs)
        return replace(op, rule=replace(rule_from_text(statement.rule), is_custom=True), attrs=attrs)

    return replace(program, body=block(program.body))
