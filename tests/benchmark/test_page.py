"""The leaderboard's page: what it says, and how it behaves in a real browser.

The browser is the system's Chromium. Without one these tests are skipped, unless the environment
says MULTISPIN_BROWSER=required. Screenshots are left in pytest's temporary folder.
"""

import csv
import hashlib
import importlib.util
import math
import os
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from gymnasium.error import DependencyNotInstalled

pytest.importorskip("jinja2", reason="needs the extra [render]: jinja2")
pytest.importorskip("matplotlib", reason="needs the extra [render]: matplotlib")
tyro = pytest.importorskip("tyro", reason="needs the extra [train]: tyro, tqdm")

from small import write_references, write_suite

from multispin_env import benchmark
from multispin_env.benchmark import Plan, Verification, load_references, page, run
from multispin_env.benchmark.report import Line

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--disable-dev-shm-usage",  # containers have little of it
]
EVIL = '<script>document.title = "taken"</script> & "co" $x_'
POLICY = """
import baselines

def make(env, name, seed=0):
    return baselines.portfolio(name, env)
"""


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """Five entries and one line of results on the small suite, their page, and what it shows."""
    folder = tmp_path_factory.mktemp("board")
    suite = benchmark.load(write_suite(folder))
    write_references(suite, folder / "references.json")
    (folder / "policy.py").write_text(POLICY)
    path = str(folder / "small.toml")
    own = Plan(path, f"{folder / 'policy.py'}:make", decision_time_ms=9.5)
    plans = {
        "strongest": Plan(path, "baselines:portfolio", {"name": "strongest"}, decision_time_ms=2.0),
        "constant": Plan(path, "baselines:portfolio", {"name": "constant"}, decision_time_ms=0.5),
        "part": Plan(
            path, "baselines:make", {"name": "greedy"}, decision_time_ms=2.0, tasks=("draft",)
        ),
        "open": replace(own, options={"name": "rivals"}),
        "seeds-0": replace(own, options={"name": "papers", "seed": 0}),
        "seeds-1": replace(own, options={"name": "rivals", "seed": 1}),
    }
    for name, plan in plans.items():
        list(run(plan, folder / name))
        times = folder / name / "timings.csv"  # as if this machine had no other work
        times.write_text(re.sub(r"[\d.]+$", "0.5", times.read_text(), flags=re.MULTILINE))
    for n, source in ((2, 0), (3, 0), (4, 1)):  # which are training seeds, as if they were run
        shutil.copytree(folder / f"seeds-{source}", folder / f"seeds-{n}")
        head = folder / f"seeds-{n}" / "results.json"
        head.write_text(head.read_text().replace(f'"seed": {source}', f'"seed": {n}'))
    entries = {
        "strongest": {"name": "Strongest", "authors": ["A"], "division": "analytical"},
        "constant": {"name": "constant", "authors": ["B"], "division": "analytical"},
        "part": {"name": EVIL, "authors": ["<i>C</i>"], "description": EVIL, "training": EVIL},
        "open": {"name": "Open & free", "authors": ["D"], "training_rounds": 12_000},
        "seeds": {
            "name": "Learned",
            "authors": ["E", "F"],
            "division": "learned-closed",
            "training_rounds": 1_000_000,
            "description": "Knows acceptance rates.",
            "training": "python train.py --seed 3",
        },
    }
    for name, said in entries.items():
        results = {"run-0": folder / name}
        if name == "seeds":
            results = {f"run-{n}": folder / f"seeds-{n}" for n in range(5)}
        benchmark.pack(results, folder / "entries" / name, **said)
    assert benchmark.verify(folder / "entries" / "constant", None).status == "replayed"
    head = (folder / "entries" / "seeds" / "entry.toml").read_bytes()
    outcome = Verification("verified", "", hashlib.sha256(head).hexdigest(), 7.25)
    outcome.save(folder / "entries" / "seeds")
    assert Verification.load(folder / "entries" / "seeds").status == "verified"
    lines = [Line.of_entry(folder / "entries" / name) for name in entries]
    lines.append(Line.of_results(folder / "strongest", "Same again"))
    references = load_references(suite, path=folder / "references.json")
    tables = page.write(folder / "site", lines, suite, references)
    return folder, lines, suite, references, tables


@pytest.fixture(scope="module")
def text(board):
    return (board[0] / "site" / "leaderboard.html").read_text()


def test_the_same_entries_give_the_same_bytes(board, text):
    _, lines, suite, references, tables = board
    assert page.html(tables, lines, suite, references) == text


def test_it_needs_nothing_else(board, text):
    """No address but the table's; every id is there once, and whatever is referred to is."""
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(set(ids)) == len(ids) > 80
    referred = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', text))
    assert {a or b for a, b in referred} <= set(ids)
    addresses = set(re.findall(r'(?:href|src)="([^#"][^"]*)"', text))
    assert addresses == {"data:,", "leaderboard.csv"}
    rest = text.replace("http://www.w3.org/2000/svg", "")
    assert "http" not in re.sub(r"http-equiv", "", rest)
    assert "@import" not in rest
    with (board[0] / "site" / "leaderboard.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 5 * 4 + 1
    assert (board[0] / "site" / "leaderboard.md").is_file()


def test_it_says_what_it_is_of(board, text):
    folder, _, suite, *_ = board
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))
    assert suite.sha256 in plain
    for fact in ("Policies 6", "Tasks 4", "Episodes a task 10", "Split dev", "Track full"):
        assert fact in plain
    for unit in ("[ms]", "[tokens/s]", "[95 % interval]", "[% of episodes]", "[rounds a run]"):
        assert unit in plain
    assert "1,000,000 rounds for each of 5 training seeds python train.py --seed 3" in plain
    assert "a decision took 7.25 ms there" in plain
    assert "at most 1,000,000 training rounds, 5 training seeds, at most 10 ms" in plain
    assert "docs/benchmark.md" in plain
    for name in ("strongest", "part"):
        toml = (folder / "entries" / name / "entry.toml").read_bytes()
        assert hashlib.sha256(toml).hexdigest() in plain


def test_what_entrants_write_is_text(text):
    assert "<script>document" not in text
    assert "<i>C</i>" not in text
    assert text.count("&lt;script&gt;document") >= 5
    assert text.count("<script") == 1


def leaderboard():
    """scripts/leaderboard.py as a module."""
    path = Path(__file__).parents[2] / "scripts" / "leaderboard.py"
    spec = importlib.util.spec_from_file_location("leaderboard", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["leaderboard"] = module
    spec.loader.exec_module(module)
    return module


def test_commands_carry_out_the_plan():
    script = leaderboard()
    folder = Path("entries") / "a name"
    for plan in (
        Plan("quick", "policy.py:make", {"a": "7", "b": [1, "x"], "c": "word", "d": None}),
        Plan("quick", "baselines:portfolio", {"name": "papers"}, "feedback", decision_time_ms=0.1),
        Plan("core-2026", "agents:load", {}, "full", "test", "a value", 3),
        Plan(
            "quick",
            "baselines:make",
            {"name": "deadline"},
            tasks=("draft-qwen2.5-10dbm-r4", "draft-qwen2.5-20dbm-r4"),
        ),
    ):
        words = shlex.split(page.evaluate_command(plan, "runs/again", folder))
        assert words[:3] == ["python", "scripts/leaderboard.py", "evaluate"]
        parsed = tyro.cli(script.Evaluate, args=words[3:])
        assert parsed.output == Path("runs/again")
        (policy,) = parsed.policy
        expected = plan.policy.replace("policy.py", "entries/a name/policy.py")
        assert parsed.plan(policy) == replace(plan, policy=expected)


def test_commands_of_an_entry(board, text):
    folder, lines, *_ = board
    (learned,) = [line for line in lines if line.name == "Learned"]
    assert "python scripts/leaderboard.py verify ENTRIES/seeds<" in text
    assert text.count("ENTRIES/seeds/policy.py:make --suite") == 5
    assert str(folder / "entries") not in text  # nobody else has that folder
    elsewhere = replace(learned, folder=Path("entries/seeds"))
    verify, *evaluate = page.Policy(0, elsewhere, 4, None, ()).commands
    assert verify == "python scripts/leaderboard.py verify entries/seeds"
    assert len(evaluate) == 5
    assert evaluate[3].endswith("--option name=papers seed=3 --output runs/seeds-run-3")


def test_charts_that_have_nothing_to_show_are_left_out(board):
    folder, lines, suite, references, _ = board
    by_name = {line.name: line for line in lines}
    (results,) = by_name["Strongest"].results
    results = replace(results, plan=replace(results.plan, decision_time_ms=0.0), decision_ms={})
    by_name["Timeless"] = Line("Timeless", "analytical", "self-reported", [results])

    def written(*names):
        chosen = [by_name[name] for name in names]
        page.write(folder / "other", chosen, suite, references)
        return (folder / "other" / "leaderboard.html").read_text()

    titles = ("Learned policies against", "Score against decision time", "Regret over rounds")
    for names, expected in (
        (("Same again",), (0, 1, 0)),  # which has timings, but nobody to compare with
        (("Strongest", "constant"), (0, 1, 4)),
        (("Timeless",), (0, 0, 0)),
        (("Open & free",), (1, 1, 0)),
        ((EVIL,), (1, 0, 0)),  # has no rank
    ):
        other = written(*names)
        assert tuple(other.count(title) for title in titles) == expected
    assert "Nobody has played this task" in other


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_what_is_missing_is_named(board, monkeypatch, missing):
    _, lines, suite, references, tables = board
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(DependencyNotInstalled, match=r"multispin-env\[render\]"):
        page.html(tables, lines, suite, references)


# In a browser


@pytest.fixture(scope="module")
def browser():
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    reason = None
    if importlib.util.find_spec("playwright") is None:
        reason = "needs the extra [dev]: playwright"
    elif path is None:
        reason = f"none of {', '.join(names)} is installed (`apt-get install chromium`)"
    if reason is not None:
        if os.environ.get("MULTISPIN_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    sync_api = importlib.import_module("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture
def visit(browser, board):
    """Open the page; at the end nothing may have failed, nor been asked of any network."""
    address = (board[0] / "site" / "leaderboard.html").as_uri()
    contexts, complaints, requests = [], [], []

    def visit(width=1280, theme="light", script=""):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
        )
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        if script:
            tab.add_init_script(script)
        tab.goto(address)
        return tab

    yield visit
    for context in contexts:
        context.close()
    assert complaints == []
    assert {request.partition("#")[0] for request in requests} == {address}


def names(tab, table="table.ranking"):
    """Policies of a table's visible rows, from top to bottom."""
    return tab.eval_on_selector_all(
        f"{table} tbody tr:not([hidden]) th", "all => all.map((th) => th.dataset.value)"
    )


def test_hostile_text_does_nothing(visit):
    tab = visit()
    assert tab.title() == "small · Multi-SPIN Gym leaderboard"
    assert EVIL in names(tab)
    assert tab.locator("#policies h3", has_text=EVIL).count() == 1


def expected_columns(board):
    """What each column of the ranking is sorted by, by policy; None is missing."""
    _, lines, _, _, tables = board
    standings = {standing.line.name: standing for standing in tables.standings}
    columns = {}
    for line in lines:
        place, entry = standings.get(line.name), line.entry
        times = [r.decision_ms for r in tables.rows if r.name == line.name]
        times = [time for time in times if not math.isnan(time)]
        columns[line.name] = (
            place and place.rank,
            line.name.lower(),
            line.division,
            ["verified", "replayed", "self-reported"].index(line.status),
            place and place.score,
            place and place.improvement,
            line.results[0].plan.decision_time_ms,
            sum(times) / len(times) if times else None,
            entry and entry.training_rounds,
            len(line.results),
        )
    return columns


def in_order(before, value, descending):
    """Sorted with ties as they were, and what is missing last."""
    known = [name for name in before if value(name) is not None]
    missing = [name for name in before if value(name) is None]
    return sorted(known, key=value, reverse=descending) + missing


def test_the_ranking_is_sorted_by_every_column(visit, board):
    tab = visit()
    columns = expected_columns(board)
    heads = tab.locator("table.ranking thead th")
    assert heads.count() == 10
    assert heads.nth(0).get_attribute("aria-sort") == "ascending"
    ranked = names(tab)
    assert len(ranked) == 6
    assert ranked == in_order(ranked, lambda name: columns[name][0], False)
    assert ranked[-1] == EVIL  # a part of the suite has no rank
    assert "1 of 4 tasks" in tab.locator("table.ranking tbody tr").last.inner_text()
    for column in [*range(1, 10), 0]:
        directions = []
        for _ in range(2):
            before = names(tab)
            heads.nth(column).locator("button").click()
            directions.append(heads.nth(column).get_attribute("aria-sort"))
            keys = {name: columns[name][column] for name in before}
            assert names(tab) == in_order(before, keys.get, directions[-1] == "descending")
            assert tab.locator("table.ranking [aria-sort]").count() == 1
        assert set(directions) == {"ascending", "descending"}


def test_tables_of_tasks_are_sorted_by_every_column(visit, board):
    tab = visit()
    rows = {row.name: row for row in board[-1].rows if row.task == "draft"}
    keys = (
        lambda name: name.lower(),
        lambda name: rows[name].score.value,
        lambda name: rows[name].goodput.value,
        lambda name: rows[name].charged,
        lambda name: rows[name].expected,
        lambda name: None if math.isnan(rows[name].decision_ms) else rows[name].decision_ms,
    )
    table = "#task-draft table"
    heads = tab.locator(f"{table} thead th")
    assert names(tab, table) == in_order(names(tab, table), keys[1], True)
    assert heads.count() == len(keys)
    for column, key in enumerate(keys):
        for _ in range(2):
            before = names(tab, table)
            heads.nth(column).locator("button").click()
            descending = heads.nth(column).get_attribute("aria-sort") == "descending"
            assert names(tab, table) == in_order(before, key, descending)


def test_sorting_by_keyboard(visit, board):
    tab = visit()
    columns = expected_columns(board)
    tab.locator("table.ranking thead button").first.focus()
    for key, descending in (("Enter", False), ("Space", True)):
        before = names(tab)
        if not descending:
            tab.keyboard.press("Tab")  # from the ranks to the names
        tab.keyboard.press(key)
        assert names(tab) == in_order(before, lambda name: columns[name][1], descending)
    focus = "getComputedStyle(document.activeElement)"
    assert tab.evaluate(f"{focus}.outlineStyle") == "solid"
    assert float(tab.evaluate(f"parseFloat({focus}.outlineWidth)")) >= 2


def test_filters(visit, board):
    tab = visit()
    columns = {line.name: line for line in board[1]}
    every = names(tab)
    output = tab.locator("#ranking output")

    def shown(fits):
        expected = [name for name in every if fits(columns[name])]
        assert names(tab) == expected
        assert output.inner_text() == f"{len(expected)} of 6 policies"
        here = tab.locator("#policies details").filter(visible=True)
        assert here.count() == len(expected)
        assert tab.locator("table.heat thead th[data-policy]").filter(visible=True).count() == len(
            expected
        )
        return expected

    for division in ("analytical", "learned-closed", "open"):
        tab.select_option("select[name=division]", division)
        assert shown(lambda line: line.division == division)  # noqa: B023
    # Charts follow.
    tab.select_option("select[name=division]", "learned-closed")
    marks = tab.locator("#charts svg [data-policy]")
    assert 0 < marks.filter(visible=True).count() < marks.count()
    tab.select_option("select[name=division]", "")
    for status in ("verified", "replayed", "self-reported"):
        tab.select_option("select[name=status]", status)
        assert shown(lambda line: line.status == status)  # noqa: B023
    tab.select_option("select[name=status]", "")
    tab.check("[name=verified]")
    assert shown(lambda line: line.status == "verified") == ["Learned"]
    tab.fill("[name=text]", "nothing like it")
    assert shown(lambda line: False) == []
    assert tab.locator(".empty").is_visible()
    tab.click("button[type=reset]")
    importlib.import_module("playwright.sync_api").expect(output).to_have_text("6 of 6 policies")
    assert shown(lambda line: True) == every
    tab.fill("[name=text]", "ACCEPTANCE rates")  # in its description
    assert shown(lambda line: line.name == "Learned")
    tab.fill("[name=text]", "<i>C</i>")  # an author
    assert shown(lambda line: line.name == EVIL)
    tab.fill("[name=text]", "st")
    assert shown(lambda line: line.name in ("Strongest", "constant"))
    tab.keyboard.press("Enter")  # sends nothing
    assert len(names(tab)) == 2


def test_tasks_and_cards_are_chosen(visit, board):
    tab = visit()
    suite = board[2]
    tasks = tab.locator("article.task").filter(visible=True)
    assert tasks.count() == 1
    for task in suite.names:
        tab.select_option("select[name=task]", task)
        assert tasks.evaluate_all("all => all.map((task) => task.dataset.task)") == [task]
    tab.select_option("select[name=task]", "")
    assert tasks.count() == 4
    tab.click("table.heat a >> text=joint")
    assert tab.locator("#task-joint h3").is_visible()
    assert tab.input_value("select[name=task]") == "joint"
    assert tasks.count() == 1
    number = names(tab).index("Learned")
    card = tab.locator(f"#policy-{number}")
    assert not card.get_by_text("Knows acceptance rates.").is_visible()
    tab.click("table.ranking a >> text=Learned")
    assert card.get_by_text("Knows acceptance rates.").is_visible()
    tab.locator("details summary").first.focus()
    tab.keyboard.press("Enter")
    assert tab.locator("details[open]").count() == 2


SHADE = "getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(246, 247, 249)", "rgb(14, 18, 23)"


def reloaded(tab, shade):
    """Load again until a theme is there: what is stored goes through another process."""
    for _ in range(20):
        tab.reload()
        if tab.evaluate(SHADE) == shade:
            return True
    return False


def test_the_theme_is_the_systems_until_it_is_chosen(visit):
    tab = visit()
    assert tab.evaluate(SHADE) == LIGHT
    tab.emulate_media(color_scheme="dark")
    assert tab.evaluate(SHADE) == DARK
    button = tab.locator("button.theme")
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert tab.evaluate(SHADE) == LIGHT
    assert button.get_attribute("aria-pressed") == "false"
    assert reloaded(tab, LIGHT)  # though the system's is dark
    button.click()
    tab.emulate_media(color_scheme="light")
    assert reloaded(tab, DARK)


def test_the_theme_changes_without_storage(visit):
    refuse = "Object.defineProperty(window, 'localStorage', {get() { throw new Error('none'); }})"
    tab = visit(script=refuse)
    tab.locator("button.theme").click()
    assert tab.evaluate(SHADE) == DARK


# What is too wide, clipped or on top of something else: texts, or nothing.
WIDER = """
[...document.querySelectorAll("body *")].filter((element) => {
  const box = element.getBoundingClientRect();
  const inside = element.parentElement.closest(".scroll") || element.matches(".skip");
  return !inside && box.width > 0 && (box.right > innerWidth + 0.5 || box.left < -0.5);
}).map((element) => element.outerHTML.slice(0, 80))
"""
OUTSIDE = """
[...document.querySelectorAll("svg text")].filter((text) => {
  const [a, b] = [text, text.ownerSVGElement].map((element) => element.getBoundingClientRect());
  return a.left < b.left - 0.5 || a.right > b.right + 0.5
      || a.top < b.top - 0.5 || a.bottom > b.bottom + 0.5;
}).map((text) => text.textContent)
"""
OVERLAPPING = """
[...document.querySelectorAll("svg")].flatMap((svg) => {
  const texts = [...svg.querySelectorAll("text")];
  const boxes = texts.map((text) => text.getBoundingClientRect());
  return texts.filter((_, i) => boxes.some((b, j) => j < i
    && b.left < boxes[i].right && boxes[i].left < b.right
    && b.top + 1 < boxes[i].bottom && boxes[i].top + 1 < b.bottom)).map((t) => t.textContent);
})
"""
# Text whose contrast with what is behind it is below 4.5 to 1.
FAINT = """
(() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (element) => {
    const colour = parse(getComputedStyle(element).backgroundColor);
    return colour[3] === 0 ? behind(element.parentElement) : colour;
  };
  const faint = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const shade = parse(element.closest("svg") ? style.fill : style.color);
    const [low, high] = [shade, behind(element)].map(luminance).sort((a, b) => a - b);
    if ((high + 0.05) / (low + 0.05) < 4.5) faint.push(element.outerHTML.slice(0, 80));
  }
  return faint;
})()
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_clipped_faint_or_on_top_of_something(visit, tmp_path, width, theme):
    tab = visit(width, theme)
    tab.select_option("select[name=task]", "")
    tab.evaluate("document.querySelectorAll('details').forEach((card) => (card.open = true))")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("document.body.scrollWidth") <= width
    assert tab.locator("svg text").count() > 50
    for problem in (WIDER, OUTSIDE, OVERLAPPING, FAINT):
        assert tab.evaluate(problem) == []
    picture = tab.screenshot(path=tmp_path / f"{width}-{theme}.png", full_page=True)
    assert int.from_bytes(picture[16:20]) == width
    # What is wider than a phone scrolls by itself.
    ranking = "document.querySelector('#ranking .scroll')"
    wider = tab.evaluate(f"{ranking}.scrollWidth - {ranking}.clientWidth")
    assert (wider > 0) == (width == 390)


def test_without_scripts_everything_is_shown(browser, board):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto((board[0] / "site" / "leaderboard.html").as_uri())
    assert tab.locator("article.task").filter(visible=True).count() == 4
    assert not tab.locator("#ranking form").is_visible()
    assert not tab.locator("button.theme").is_visible()
    context.close()
