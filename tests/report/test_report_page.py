"""The page of ``autoshard report`` in a real browser: what it shows, that it answers, and that plans cannot harm it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import pytest
from browser import ATTACK, Browser

import autoshard
from autoshard import Pin
from autoshard.api.plans import Plan
from autoshard.api.reports import write_report
from autoshard.report.amounts import bytes_text

PANELS = ("verdict", "steptime", "roofline", "timeline", "memory", "program", "parameters", "gap")


@pytest.fixture(scope="module")
def page(plan_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([plan_file], tmp_path_factory.mktemp("page") / "report.html", alternatives=1)[0]


@pytest.fixture(scope="module")
def two(plan_file: Path, other_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([plan_file, other_file], tmp_path_factory.mktemp("page") / "two.html")[0]


@pytest.fixture
def opened(chromium: Browser, page: Path) -> Browser:
    chromium.prefer("light")
    chromium.open(page)
    return chromium


def text_of(chromium: Browser, selector: str) -> str:
    return chromium.ask(f"document.querySelector({selector!r}).textContent")


def middle_of(chromium: Browser, selector: str) -> tuple[float, float]:
    """Where an element is on the screen, after it was scrolled to."""
    found = chromium.ask(
        f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}});"
        " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    return found[0], found[1]


def test_the_page_opens_without_a_complaint_and_asks_for_nothing_but_itself(opened: Browser, page: Path) -> None:
    assert opened.complaints == []
    assert opened.requests == [page.as_uri()]


def test_every_panel_is_drawn(opened: Browser) -> None:
    for panel in PANELS:
        assert len(text_of(opened, f"#{panel} .body")) > 40, panel
        assert "cannot be drawn" not in text_of(opened, f"#{panel} .body")


def test_charts_have_ink(opened: Browser) -> None:
    for panel in ("roofline", "timeline", "memory"):
        colours = opened.ask(
            f"(() => {{ const c = document.querySelector('#{panel} canvas'); "
            "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const seen = new Set(); "
            "for (let k = 0; k < d.length; k += 16) seen.add(d.slice(k, k + 3).join()); return seen.size; })()"
        )
        assert colours > 5, panel


def test_a_search_that_ended_with_its_first_plan_is_drawn_with_that_plan_and_the_bound(
    chromium: Browser, plan: Plan, tmp_path: Path
) -> None:
    plan.save(tmp_path / "plan.json")
    (tmp_path / "run.json").write_text(json.dumps({"search": [[0.0001, plan.objective_s, None, "solving"]]}))
    chromium.prefer("light")
    chromium.open(write_report([tmp_path / "plan.json"], tmp_path / "report.html")[0])
    seen = set(
        chromium.ask(
            "(() => { const c = document.querySelector('#gap canvas'); "
            "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const seen = new Set(); "
            "for (let k = 0; k < d.length; k += 4) seen.add(d.slice(k, k + 3).join()); return [...seen]; })()"
        )
    )
    assert {"47,111,222", "192,57,43"} <= seen  # --accent and --bad


def test_the_verdict_says_what_the_plan_says(opened: Browser, plan: Plan) -> None:
    told = text_of(opened, "#verdict")
    assert bytes_text(plan.memory.peak_bytes) in told.replace(",", "")
    assert f"{plan.step_time.mfu['estimate']:.1%}" in told


def test_slash_searches_the_program_and_enter_shows_what_was_found(opened: Browser) -> None:
    opened.press("/")
    opened.write("dot_general params/1/up")
    opened.wait("document.querySelector('#program .hint').textContent.includes(' of ')")
    found = int(text_of(opened, "#program .hint").split()[0])
    assert found >= 1
    shown = opened.ask("[...document.querySelectorAll('#program .row .op')].map(e => e.textContent)")
    assert len(shown) == found
    assert all(name.startswith("dot_general:") for name in shown)
    opened.press("Enter")
    assert text_of(opened, "#inspector h3").startswith("dot_general:")


def test_a_search_without_a_hit_says_so(opened: Browser) -> None:
    opened.press("/")
    opened.write("no such op")
    opened.wait("document.querySelector('#program .hint').textContent.startsWith('0 of')")
    assert opened.ask("document.querySelectorAll('#program .row').length") == 0


def test_a_click_on_a_parameter_shows_its_sharding_and_who_stated_it(opened: Browser, plan: Plan) -> None:
    opened.ask("document.querySelector('#filter').value = 'params/0/up'")
    opened.ask("document.querySelector('#filter').dispatchEvent(new Event('input')); 1")
    opened.click(*middle_of(opened, "#parameters .row .cell"))
    told = text_of(opened, "#inspector")
    assert "params/0/up" in told
    assert plan["params/0/up"] in told
    assert "[256, 256]" in told
    assert "no statement says so" not in told


def test_what_nobody_stated_was_decided_by_cost(opened: Browser) -> None:
    opened.ask("document.querySelector('#filter').value = 'params/1/down'")
    opened.ask("document.querySelector('#filter').dispatchEvent(new Event('input')); 1")
    opened.click(*middle_of(opened, "#parameters .row .cell"))
    assert "no statement says so" in text_of(opened, "#inspector")


def test_prices_of_alternatives_are_shown_where_the_page_was_made_with_them(page: Path, opened: Browser) -> None:
    # one input was priced, the first by memory; the others name the command
    rows = opened.ask("document.querySelectorAll('#parameters .row').length")
    priced = []
    for k in range(rows):
        opened.ask(f"document.querySelectorAll('#parameters .row')[{k}].click()")
        priced.append("costs" in text_of(opened, "#inspector").split("instead")[-1])
        assert priced[-1] or "autoshard explain" in text_of(opened, "#inspector")
    assert priced.count(True) == 1


def test_parameters_are_sorted_by_the_column_that_is_asked_for(opened: Browser) -> None:
    paths = "[...document.querySelectorAll('#parameters .row .cell:first-child')].map(e => e.textContent)"
    opened.click(*middle_of(opened, "#parameters .head button"))
    up = opened.ask(paths)
    assert opened.ask("document.querySelector('#parameters [aria-sort]').getAttribute('aria-sort')") == "ascending"
    opened.click(*middle_of(opened, "#parameters .head button"))
    assert opened.ask(paths) == up[::-1]
    assert up == sorted(up)
    assert len(up) == 7


def test_the_tree_unfolds_and_folds_with_arrow_keys(opened: Browser) -> None:
    opened.ask("document.querySelector('#program .scroller').focus()")
    rows = "document.querySelector('#program .scroller').getAttribute('aria-rowcount')"
    before = int(opened.ask(rows))
    for _ in range(before):
        if opened.ask("document.querySelector('#program .row.current')?.getAttribute('aria-expanded')") == "false":
            break
        opened.press("ArrowDown")
    opened.press("ArrowRight")
    assert int(opened.ask(rows)) > before
    opened.press("ArrowLeft")
    assert int(opened.ask(rows)) == before


def test_layers_that_are_written_out_are_folded_under_the_paths_of_their_parameters(opened: Browser) -> None:
    opened.ask("[...document.querySelectorAll('#program button')].find(b => b.textContent == 'unfold all').click()")
    opened.ask("document.querySelector('#program .scroller').style.height = '4000px'")
    opened.wait("document.querySelectorAll('#program .row').length > 40")
    groups = opened.ask("[...document.querySelectorAll('#program .row .group')].map(e => e.textContent)")
    assert {"params/0", "params/1", "params/2"} <= set(groups)
    assert "3 layers alike" in groups


def test_a_click_on_memory_shows_what_is_held_at_that_moment(opened: Browser, plan: Plan) -> None:
    at_peak = int(text_of(opened, "#memory h3").split(" in ")[1].split()[0])
    assert at_peak == len(plan.memory.held)
    x, y = middle_of(opened, "#memory canvas")
    opened.click(x, y)
    moment = text_of(opened, "#memory h3")
    assert "point" in moment
    opened.ask("document.querySelector('#memory canvas').focus()")
    opened.press("ArrowRight")
    assert text_of(opened, "#memory h3") != moment
    opened.press("p")
    assert "the peak" in text_of(opened, "#memory h3")


def test_arrow_keys_walk_through_the_timeline(opened: Browser) -> None:
    opened.ask("document.querySelector('#timeline canvas').focus()")
    opened.press("ArrowRight")
    first = text_of(opened, "#inspector")
    opened.press("ArrowRight")
    assert text_of(opened, "#inspector") != first
    assert len(text_of(opened, "#live")) > 5


def test_the_serial_timeline_is_the_sum_that_is_minimised(opened: Browser) -> None:
    assert "The estimate" in text_of(opened, "#timeline .note")
    opened.click(*middle_of(opened, "#timeline .switch button + button"))
    assert "Nothing overlaps" in text_of(opened, "#timeline .note")


def test_the_theme_follows_the_system_until_it_is_chosen(opened: Browser) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = opened.ask(ground)
    opened.prefer("dark")
    dark = opened.ask(ground)
    assert dark != light
    opened.press("t")
    assert opened.ask(ground) == light
    opened.press("t")
    assert opened.ask("document.documentElement.dataset.theme") == "dark"
    assert opened.ask(ground) == dark
    opened.press("t")
    opened.prefer("light")
    assert opened.ask(ground) == light


def test_everything_that_can_be_focused_has_a_name(opened: Browser) -> None:
    nameless = opened.ask(
        "[...document.querySelectorAll('button, input, canvas, .scroller, a')].filter(e => "
        "!(e.getAttribute('aria-label') || e.textContent.trim() || e.title)).map(e => e.outerHTML.slice(0, 90))"
    )
    assert nameless == []


def test_a_bound_of_the_last_stage_is_not_told_of_all_plans(chromium: Browser, tmp_path: Path) -> None:
    pins = [Pin("x", '[{"a"}, {?}]', priority=1), Pin("w", '[{}, {"a"}]')]
    specs = [jax.ShapeDtypeStruct(shape, jax.numpy.float32) for shape in ((64, 128), (128, 256))]
    staged = autoshard.plan(lambda x, w: x @ w, *specs, mesh={"a": 4}, hardware="tpu_v5e", constraints=pins)
    staged.save(tmp_path / "plan.json")
    chromium.open(write_report([tmp_path / "plan.json"], tmp_path / "report.html")[0])
    assert "no plan of the last of 2 stages takes less" in text_of(chromium, "#verdict")


def test_a_plan_of_the_objective_overlap_does_not_say_that_nothing_overlaps(chromium: Browser, tmp_path: Path) -> None:
    specs = [jax.ShapeDtypeStruct(shape, jax.numpy.float32) for shape in ((64, 128), (128, 256))]
    autoshard.plan(
        lambda x, w: x @ w, *specs, mesh={"a": 4}, hardware="tpu_v5e", objective="overlap",
    ).save(tmp_path / "plan.json")  # fmt: skip
    chromium.open(write_report([tmp_path / "plan.json"], tmp_path / "report.html")[0])
    assert "nothing overlaps" not in text_of(chromium, "#verdict")


def test_a_small_gap_is_told_in_the_verdict_and_beside_other_plans_as_the_command_line_does(
    chromium: Browser, plan: Plan, tmp_path: Path
) -> None:
    replace(plan, gap=0.0002).save(tmp_path / "plan.json")
    chromium.open(write_report([tmp_path / "plan.json"] * 2, tmp_path / "report.html")[0])
    assert "0.02%" in text_of(chromium, "#verdict")
    assert "0.02%" in text_of(chromium, "#compare")


def test_two_plans_are_shown_beside_each_other(chromium: Browser, two: Path) -> None:
    chromium.open(two)
    assert chromium.complaints == []
    told = text_of(chromium, "#compare")
    assert "split in different ways" in told
    assert "params/0/up" in told
    assert chromium.ask("document.querySelectorAll('#plans button').length") == 2
    before = text_of(chromium, "#verdict")
    chromium.click(*middle_of(chromium, "#plans button + button"))
    assert text_of(chromium, "#verdict") != before


def test_one_plan_is_compared_with_nothing(opened: Browser) -> None:
    assert opened.ask("document.getElementById('compare').hidden") is True


def branches(x: jax.Array) -> jax.Array:
    x = jax.lax.while_loop(lambda c: c.sum() < 10, lambda c: c @ c, x)
    return jax.lax.cond(x[0, 0] > 0, jax.numpy.sort, lambda v: v.T, x)


@pytest.mark.parametrize("function", [branches, lambda x: x])
def test_programs_without_an_op_and_with_branches_are_drawn_too(
    function: Callable[..., jax.Array], chromium: Browser, tmp_path: Path
) -> None:
    spec = jax.ShapeDtypeStruct((64, 64), jax.numpy.float32)
    autoshard.plan(function, spec, mesh={"a": 2, "b": 4}, hardware="tpu_v5e", effort=0.02).report(tmp_path / "r.html")
    chromium.open(tmp_path / "r.html")
    assert chromium.complaints == []
    assert chromium.ask("document.querySelectorAll('.note.bad').length") == 0


def test_names_of_somebody_elses_plan_are_text_and_nothing_else(
    chromium: Browser, hostile_file: Path, tmp_path: Path
) -> None:
    page = write_report([hostile_file], tmp_path / "hostile.html")[0]
    chromium.open(page)
    for click in (
        "document.querySelectorAll('#parameters .row')[0].click()",
        "document.querySelectorAll('#program .row').forEach(e => e.click())",
        "document.querySelectorAll('#memory .row')[0].click()",
        "document.querySelectorAll('#steptime .row')[0]?.click()",
    ):
        chromium.ask(click)
    assert chromium.ask("typeof hacked") == "undefined"
    assert chromium.ask("document.querySelectorAll('#pwned, img').length") == 0
    assert chromium.ask("document.querySelectorAll('script').length") == 2
    assert ATTACK in text_of(chromium, "#title")
    assert chromium.requests == [page.as_uri()]
    assert chromium.complaints == []


def test_without_scripts_the_page_still_has_a_summary(chromium: Browser, page: Path) -> None:
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.call("Page.navigate", url=page.as_uri())
        chromium.wait("document.querySelector('noscript pre') !== null")
        told = text_of(chromium, "noscript pre")
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)
    assert "status" in told
    assert "params/*/up" in told
