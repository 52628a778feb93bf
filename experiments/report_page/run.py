"""How large the page of a large plan is, and how long a browser takes to open it.

    python experiments/report_page/run.py [--layers 32] [--repeat 5] [--plan PLAN.json]

Plans Llama 3 8B with every layer written out on 16x16 (or takes a plan that exists), writes its page, and opens it in
a headless Chromium. Seconds until it is drawn are the page's own: from the start of its navigation to the second frame
after all panels are there; beside them the processor time of the page's main thread until then. Prints one row, and the
row of a program of at least 60,000 values whose layers are those of the plan, again and again (`--no-larger` leaves it
out).
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "report"))
VALUES = 60_000


def planned(layers: int, file: Path) -> None:
    """The plan of a train step without loops over layers."""
    from autoshard.api.verbs import plan_traced
    from autoshard.frontends.jax.function import trace
    from autoshard.models import build

    program = build(
        "transformer", dims="llama3_8b", layers=layers, batch=256, seq=8192, scan=False, remat=True,
        param_dtype="bfloat16", attention_block=512,
    )  # fmt: skip
    traced = trace(
        program.step, *program.specs, donate_argnums=program.donate_argnums, argnames=program.argnames, name="llama3_8b"
    )
    plan_traced(
        traced, mesh={"data": 16, "model": 16}, hardware="tpu_v5e", strategy="joint", time_limit=300.0,
        accepted_gap=0.005, memory_limit="none",
    ).save(file)  # fmt: skip


def larger(content: dict[str, Any]) -> dict[str, Any]:
    """A page's content repeated until it has enough values: ops, values, transfers, times and memory moved along."""
    times = -(-VALUES // len(content["values"]["name"]))
    ops, values, moves = (
        len(content[table][key]) for table, key in (("ops", "id"), ("values", "name"), ("moves", "kind"))
    )
    points = content["memory"]["points"]

    def along(column: list[int], step: int) -> list[int]:
        return [item + k * step if item >= 0 else item for k in range(times) for item in column]

    out = dict(content)
    out["ops"] = {key: column * times for key, column in content["ops"].items()}
    out["ops"]["id"] = along(content["ops"]["id"], ops)
    for key in ("operands", "results"):
        out["ops"][key] = along(content["ops"][key], values)
        at = content["ops"][f"{key}_at"]
        out["ops"][f"{key}_at"] = [0] + [n + k * at[-1] for k in range(times) for n in at[1:]]
    out["values"] = {k: (c * times if isinstance(c, list) else c) for k, c in content["values"].items()}
    out["values"]["maker"] = along(content["values"]["maker"], ops)
    out["moves"] = {key: column * times for key, column in content["moves"].items()}
    out["moves"]["value"], out["moves"]["op"] = (
        along(content["moves"]["value"], values),
        along(content["moves"]["op"], ops),
    )
    out["events"] = {key: column * times for key, column in content["events"].items()}
    out["events"]["op"], out["events"]["move"] = (
        along(content["events"]["op"], ops),
        along(content["events"]["move"], moves),
    )
    out["rows"] = {key: column * times for key, column in content["rows"].items()}
    out["rows"]["op"] = along(content["rows"]["op"], ops)
    held = content["memory"]
    out["memory"] = {key: held[key] * times for key in ("what", "bytes", "group")}
    out["memory"] |= {"value": along(held["value"], values), "start": along(held["start"], points)}
    out["memory"] |= {"stop": along(held["stop"], points), "op_at": along(held["op_at"], ops)}
    out["memory"]["points"] = points * times
    return out


def busy_s(chromium: Any) -> float:
    """Processor time that the main thread of the page has taken."""
    found = {it["name"]: it["value"] for it in chromium.call("Performance.getMetrics")["metrics"]}
    return found["TaskDuration"]


def span(values: list[float], unit: str, digits: int = 2) -> str:
    """
    >>> span([1.0, 2.5], "s")
    '1.00 to 2.50 s'
    """
    return f"{min(values):.{digits}f} to {max(values):.{digits}f} {unit}"


def measure(name: str, content: dict[str, Any], repeat: int, work: Path) -> None:
    """Write the page of some content, open it, and use it."""
    from browser import Browser

    from autoshard.report.page import report_page

    began = time.perf_counter()
    page = work / "report.html"
    page.write_text(report_page([content], summaries=[name]))
    written_s = time.perf_counter() - began
    opened, busy, scrolled, found = [], [], [], []
    with Browser() as chromium:
        chromium.resize(1500, 1000)
        chromium.call("Performance.enable", timeDomain="threadTicks")
        for _ in range(repeat):
            chromium.open(page)
            assert chromium.complaints == [], chromium.complaints
            busy.append(busy_s(chromium))
            opened.append(int(chromium.ask("document.documentElement.dataset.ready")) / 1000)
            chromium.ask("[...document.querySelectorAll('button')].find(b => b.textContent == 'unfold all').click()")
            before = busy_s(chromium)
            chromium.ask(SCROLL)
            scrolled.append(1000 * (busy_s(chromium) - before) / FRAMES)
            found.append(chromium.ask(SEARCH))
        rows = chromium.ask("document.querySelector('#program .scroller').getAttribute('aria-rowcount')")
    print(
        f"{name}: {len(content['ops']['id']):,} ops, {len(content['values']['name']):,} values; page "
        f"{page.stat().st_size / 1e6:.2f} MB, written in {written_s:.1f} s; open in {span(opened, 's')}, of which the "
        f"main thread works {span(busy, 's')}; {int(rows):,} rows found in {span(found, 'ms', 0)}; a frame of "
        f"scrolling takes the main thread {span(scrolled, 'ms', 1)}",
        flush=True,
    )


FRAMES = 60
SCROLL = """(async () => {
  const node = document.querySelector('#program .scroller');
  node.scrollIntoView();
  for (let k = 0; k < 60; k++) {
    node.scrollTop += 377;
    await new Promise(requestAnimationFrame);
  }
})()"""
SEARCH = """(() => {
  const input = document.querySelector('#search');
  input.value = 'dot_general';
  const began = performance.now();
  input.dispatchEvent(new Event('input'));
  return performance.now() - began;
})()"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--no-larger", action="store_true")
    given = parser.parse_args()
    from autoshard.api.plans import Plan
    from autoshard.report.page.content import plan_content

    with tempfile.TemporaryDirectory() as folder:
        file = given.plan or Path(folder) / "plan.json"
        if given.plan is None:
            planned(given.layers, file)
        began = time.perf_counter()
        plan = Plan.load(file)
        loaded_s = time.perf_counter() - began
        began = time.perf_counter()
        content = json.loads(json.dumps(plan_content(plan, name=file.name)))
        print(f"plan read in {loaded_s:.1f} s, content made in {time.perf_counter() - began:.1f} s", flush=True)
        measure(plan.program.name, content, given.repeat, Path(folder))
        if not given.no_larger:
            measure(f"{plan.program.name}, repeated", larger(content), given.repeat, Path(folder))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
