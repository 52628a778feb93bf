"""What reports are made of: the order of events, memory, folds; and the forms for other tools."""

import base64
import csv
import gzip
import hashlib
import io
import json
import re
from itertools import pairwise
from pathlib import Path

import jax
import pytest
from jax.sharding import PartitionSpec as P

import autoshard
from autoshard.api.plans import Plan
from autoshard.api.reports import ReportFormat, search_beside, write_report
from autoshard.cli import main
from autoshard.costs import fusion
from autoshard.report.page.content import plan_content
from autoshard.report.view.layers import Repeat, repeats
from autoshard.report.view.memory import memory_view
from autoshard.report.view.outline import outline
from autoshard.report.view.search import search_points
from autoshard.report.view.source import place_of
from autoshard.report.view.timeline import events, on_the_clock


def content_of(page: Path) -> dict:
    """The data in a page, as its script unpacks it."""
    packed = re.search(r'<script id="data"[^>]*>([^<]*)</script>', page.read_text())
    assert packed is not None
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))


# -- what is derived ---------------------------------------------------------------------------------


def test_every_row_of_the_price_happens_once(plan: Plan) -> None:
    rows = [event.row for event in events(plan) if event.row >= 0]
    assert sorted(rows) == list(range(len(plan.cost.rows)))


def test_events_add_up_to_the_serial_step_and_to_the_estimate(plan: Plan) -> None:
    found = events(plan)
    assert sum(event.seconds for event in found) == pytest.approx(plan.cost.step_s, rel=1e-9)
    step = plan.step_time
    exposed = sum(event.exposed_s for event in found)
    assert max(exposed, step.lower_s) == pytest.approx(step.estimate_s, rel=1e-9)


def test_the_collectives_of_the_programs_own_shard_maps_happen() -> None:
    mesh = jax.make_mesh((4,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    summed = jax.shard_map(lambda x: jax.lax.psum(x, "a"), mesh=mesh, in_specs=P("a"), out_specs=P())
    x = jax.ShapeDtypeStruct((64, 64), "float32")
    plan = autoshard.plan(summed, x, mesh={"a": 4}, hardware="tpu_v5e")
    assert plan.cost.communication_s > 0
    assert sum(event.seconds for event in events(plan)) == pytest.approx(plan.cost.step_s, rel=1e-9)


def test_on_the_clock_nothing_starts_before_what_comes_before_it_ends(plan: Plan) -> None:
    for overlapped in (True, False):
        placed = on_the_clock(events(plan), overlapped=overlapped)
        assert all(a.stop_s == b.start_s for a, b in pairwise(placed))
        hidden = sum(p.hidden_to_s - p.hidden_from_s for p in placed)
        assert (hidden > 0) == overlapped


def test_a_collective_for_an_op_comes_before_it_and_after_what_makes_its_value(plan: Plan) -> None:
    makers = {value: op.id for op, _ in plan.program.walk() for value in op.results}
    order = {op: k for k, op in enumerate(event.op for event in events(plan) if event.row < 0)}
    for number, event in enumerate(events(plan)):
        if event.row < 0 or event.op < 0:
            continue
        before = {e.op for e in events(plan)[:number] if e.row < 0}
        value = plan.cost.rows[event.row].value
        made = makers.get(value)
        assert made is None or made not in order or made in before


def test_memory_over_time_has_the_peak_of_the_plan(plan: Plan) -> None:
    view = memory_view(plan, fusion.analyse(plan.program))
    total = [sum(h.bytes for h in view.held if h.start <= t < h.stop) for t in range(view.points)]
    assert max(total) == plan.memory.peak_bytes
    assert total.index(max(total)) == plan.memory.time


def test_every_op_has_one_row_in_the_order_of_the_program(plan: Plan) -> None:
    rows = [row.op for row in outline(plan.program) if row.op >= 0]
    assert rows == [op.id for op, _ in plan.program.walk()]


def test_a_fold_is_never_empty_and_never_skips_a_level(plan: Plan) -> None:
    rows = outline(plan.program)
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        assert row.op >= 0 or (after is not None and after.depth == row.depth + 1)
        assert after is None or after.depth <= row.depth + 1


def test_of_repeats_that_overlap_the_one_that_covers_most_is_kept() -> None:
    layer = list("abcdefghij")
    assert repeats(["s", *layer * 4, "t"]) == [Repeat(1, 10, 4)]


def test_a_list_without_repeats_has_none() -> None:
    assert repeats(list("abcdefghijklmnopqrstuvwxyz")) == []


def test_short_repeats_are_no_layers() -> None:
    assert repeats(list("abc" * 3)) == []


@pytest.mark.parametrize(
    ("source", "file", "function", "scopes", "phase"),
    [
        ("m.py:3 (f.<locals>.<lambda>) [jvp()]", "m.py:3", "f", (), "forward"),
        ("m.py:3 (f) [jvp(Model)/layers_0/attn]", "m.py:3", "f", ("Model", "layers_0", "attn"), "forward"),
        ("m.py:3 (f) [transpose(jvp())/rematted_computation]", "m.py:3", "f", (), "recomputed"),
        ("m.py:3 (f) [transpose(jvp())/bsd,dnh->bsnh]", "m.py:3", "f", (), "backward"),
        ("", "", "", (), ""),
        ("m.py:3", "m.py:3", "", (), ""),
    ],
)
def test_a_place_is_taken_apart(source: str, file: str, function: str, scopes: tuple[str, ...], phase: str) -> None:
    place = place_of(source)
    assert (place.file, place.function, place.scopes, place.phase) == (file, function, scopes, phase)


# -- the page ----------------------------------------------------------------------------------------


def test_the_same_plan_gives_the_same_page_byte_for_byte(plan_file: Path, tmp_path: Path) -> None:
    first, second = (write_report([plan_file], tmp_path / name)[0].read_bytes() for name in ("a.html", "b.html"))
    assert first == second


def test_the_page_names_no_address_but_that_of_a_standard(plan_file: Path, tmp_path: Path) -> None:
    page = write_report([plan_file], tmp_path / "a.html")[0].read_text()
    assert set(re.findall(r"https?://[^\s\"'`)]+", page)) == {"http://www.w3.org/2000/svg"}


def test_the_policy_of_the_page_allows_its_own_script_alone(plan_file: Path, tmp_path: Path) -> None:
    page = write_report([plan_file], tmp_path / "a.html")[0].read_text()
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(script) == 1
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "default-src 'none'" in page


def test_columns_of_a_table_are_of_one_length(plan: Plan) -> None:
    content = plan_content(plan, name="plan.json")
    ops = content["ops"]
    assert {len(ops[key]) for key in ("id", "kind", "source", "flop", "bytes", "seconds", "rule", "cut")} == {
        len(plan.program.ops)
    }
    assert len(ops["operands_at"]) == len(plan.program.ops) + 1
    assert len(ops["operands"]) == len(ops["wants"]) == ops["operands_at"][-1]
    for table in ("moves", "events", "rows"):
        assert len({len(column) for column in content[table].values()}) == 1


def test_a_plan_with_bytes_that_are_no_text_in_its_names_can_be_written(plan_file: Path, tmp_path: Path) -> None:
    data = json.loads(plan_file.read_text())
    data["program"]["name"] = "a\udcffb"
    odd = tmp_path / "plan.json"
    odd.write_text(json.dumps(data))
    found = content_of(write_report([odd], tmp_path / "a.html")[0])["plans"][0]
    assert found["verdict"]["program"] == "a\udcffb"


def test_the_search_is_read_from_run_json_beside_the_plan(plan_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(plan_file.read_bytes())
    assert search_beside(file) == []
    (tmp_path / "run.json").write_text('{"search": [[0.1, 2.0, null, "solving"], [0.5, 1.5, 1.0, "solving"]]}')
    assert search_beside(file) == [(0.1, 2.0, None, "solving"), (0.5, 1.5, 1.0, "solving")]
    content = content_of(write_report([file], None)[0])["plans"][0]
    assert content["search"] == [[0.1, 2, None, "solving"], [0.5, 1.5, 1, "solving"]]


def test_a_plan_that_was_just_made_knows_how_its_gap_closed(plan: Plan) -> None:
    points = search_points(plan.run)
    assert points
    assert all(a.seconds <= b.seconds for a, b in pairwise(points))
    assert points[-1].cost_s == pytest.approx(plan.objective_s, rel=1e-3)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"search": 3}', '{"search": [[1]]}', '{"search": [["a", 1, 2, 3]]}'])
def test_a_damaged_run_json_is_as_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    assert search_beside(tmp_path / "plan.json") == []


# -- other tools -------------------------------------------------------------------------------------


def test_events_of_a_trace_nest_on_their_tracks(plan_file: Path, plan: Plan, tmp_path: Path) -> None:
    trace = json.loads(write_report([plan_file], tmp_path / "t.json", ReportFormat.PERFETTO)[0].read_text())
    tracks: dict[int, list[tuple[float, float]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            tracks.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    assert len(tracks) >= 3
    for spans in tracks.values():
        open_: list[float] = []
        for start, stop in sorted(spans, key=lambda s: (s[0], -s[1])):
            while open_ and open_[-1] <= start + 1e-5:
                open_.pop()
            assert not open_ or stop <= open_[-1] + 1e-5
            open_.append(stop)
    end = max(stop for spans in tracks.values() for _, stop in spans)
    assert end == pytest.approx(1e6 * sum(e.exposed_s for e in events(plan)), rel=1e-6)


def test_what_is_hidden_begins_and_ends_in_a_trace(plan_file: Path, tmp_path: Path) -> None:
    trace = json.loads(write_report([plan_file], tmp_path / "t.json", ReportFormat.PERFETTO)[0].read_text())
    begun, ended = ([e["id"] for e in trace["traceEvents"] if e["ph"] == phase] for phase in "be")
    assert begun
    assert sorted(begun) == sorted(ended)


def test_edges_of_the_graph_come_from_outputs_that_exist(plan_file: Path, tmp_path: Path) -> None:
    graphs = json.loads(write_report([plan_file], tmp_path / "g.json", ReportFormat.MODEL_EXPLORER)[0].read_text())
    assert set(graphs) == {"label", "graphs"}
    nodes = {node["id"]: node for node in graphs["graphs"][0]["nodes"]}
    assert len(nodes) == len(graphs["graphs"][0]["nodes"])
    edges = [(node, edge) for node in nodes.values() for edge in node["incomingEdges"]]
    assert edges
    for _, edge in edges:
        outputs = {it["id"] for it in nodes[edge["sourceNodeId"]]["outputsMetadata"]}
        assert edge["sourceNodeOutputId"] in outputs
    told = {pair["key"] for node in nodes.values() for out in node["outputsMetadata"] for pair in out["attrs"]}
    assert {"shape", "sharding", "on a device"} <= told


def test_layers_are_namespaces_of_the_graph(plan_file: Path, tmp_path: Path) -> None:
    graphs = json.loads(write_report([plan_file], tmp_path / "g.json", ReportFormat.MODEL_EXPLORER)[0].read_text())
    spaces = {node["namespace"] for node in graphs["graphs"][0]["nodes"]}
    assert any("params.1" in space for space in spaces)


def test_tables_add_up_to_the_plan(plan_file: Path, plan: Plan, tmp_path: Path) -> None:
    files = write_report([plan_file], tmp_path / "csv", ReportFormat.CSV)
    tables = {file.stem: list(csv.DictReader(io.StringIO(file.read_text()))) for file in files}
    assert set(tables) == {"collectives", "parameters", "memory", "held"}
    seconds = sum(float(row["total_s"]) for row in tables["collectives"])
    assert seconds == pytest.approx(plan.cost.communication_s)
    assert max(int(row["bytes"]) for row in tables["memory"]) == plan.memory.peak_bytes
    paths = {row["path"]: row for row in tables["parameters"]}
    assert paths["params/0/up"]["sharding"] == plan["params/0/up"]
    assert paths["params/0/up"]["stated"] == "1"
    assert paths["params/1/up"]["stated"] == "0"


def test_no_cell_is_a_formula_of_a_spreadsheet(plan_file: Path, tmp_path: Path) -> None:
    data = json.loads(plan_file.read_text())
    program = data["program"]
    program["input_names"] = ["=cmd()" + name for name in program["input_names"]]
    for value in program["values"]:
        value["name"] = "=cmd()" + value["name"]
    odd = tmp_path / "plan.json"
    odd.write_text(json.dumps(data))
    for file in write_report([odd], tmp_path / "csv", ReportFormat.CSV):
        for row in csv.reader(io.StringIO(file.read_text())):
            assert not any(cell.startswith(("=", "+", "@")) for cell in row)


def test_a_notebook_shows_the_verdict_and_no_markup_of_the_plan(hostile_file: Path) -> None:
    shown = Plan.load(hostile_file)._repr_html_()
    assert "<script" not in shown
    assert "<img" not in shown
    assert "&lt;/script&gt;" in shown
    assert "MFU" in shown


# -- the command -------------------------------------------------------------------------------------


def test_the_report_is_written_beside_the_plan_and_overwrites(plan_file: Path, tmp_path: Path, capsys) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(plan_file.read_bytes())
    (tmp_path / "report.html").write_text("old")
    assert main(["report", str(file)]) == 0
    assert str(tmp_path / "report.html") in capsys.readouterr().out
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plan.json", "report.html"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["missing.json"], "does not exist"),
        (["PLAN", "--format", "pdf"], "no format 'pdf'"),
        (["PLAN", "-o", "DIRECTORY"], "is a directory"),
        (["PLAN", "PLAN", "--format", "csv"], "tables are of one plan"),
        (["PLAN", "--format", "csv", "-o", "FILE"], "this is a file"),
        (["PLAN", "-o", "PLAN"], "is the plan itself"),
        (["PLAN", "--format", "perfetto", "--alternatives", "2"], "--alternatives is for pages"),
        (["TEXT"], "not valid JSON"),
        (["PLAN"] * 13, "1 to 12 plans"),
    ],
)
def test_what_cannot_be_reported_is_said(
    arguments: list[str], told: str, plan_file: Path, tmp_path: Path, capsys
) -> None:
    text = tmp_path / "text.json"
    text.write_text("{")
    places = {"PLAN": str(plan_file), "DIRECTORY": str(tmp_path), "FILE": str(text), "TEXT": str(text)}
    assert main(["report", *(places.get(word, word) for word in arguments)]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error


def test_a_plan_writes_its_own_page(plan: Plan, tmp_path: Path) -> None:
    plan.report(tmp_path / "own.html")
    assert content_of(tmp_path / "own.html")["plans"][0]["verdict"]["status"] == plan.status


def test_the_wheel_has_the_parts_of_the_page() -> None:
    import tomllib

    from autoshard.report.page.html import SCRIPTS

    root = Path(__file__).resolve().parents[2]
    static = root / "autoshard" / "report" / "page" / "static"
    assert {f"{name}.js" for name in SCRIPTS} == {file.name for file in static.glob("*.js")}
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    assert "report/page/static/*" in settings["tool"]["setuptools"]["package-data"]["autoshard"]
