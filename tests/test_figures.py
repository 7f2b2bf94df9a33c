"""What the papers claim holds in our tables at --quick size; the page says what the tables say."""

import functools
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

iio = pytest.importorskip("imageio.v3", reason="needs the extra [render]: imageio")
pytest.importorskip("matplotlib", reason="needs the extra [render]: matplotlib")
pytest.importorskip("tyro", reason="needs the extra [train]: tyro, tqdm")

from experiments import page, tables
from experiments.memory import remembered
from experiments.registry import FIGURES
from experiments.tables import job, one, pick, values

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "figures.py"
GOODPUT = "goodput [tokens/s]"


@functools.cache
def measured(name):
    """The table of a figure, measured once a process."""
    return tables.measure(FIGURES[name].jobs(True))


def groups(rows, *keys):
    """Rows by the values of some keys."""
    found = {}
    for row in rows:
        found.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return found


def column(rows):
    return np.array([row["value"] for row in rows])


# ---- paper A -------------------------------------------------------------------------------------


def test_goodput_is_unimodal_in_the_draft_length_with_the_closed_form_at_the_peak():
    found = groups(measured("paper-a-fig3"), "pair", "reading")
    assert len(found) == 4
    for rows in found.values():
        theory = column(pick(rows, quantity="theory [tokens/s]"))
        assert len(theory) == 25
        rising = np.diff(theory) > 0
        assert rising[0]
        assert not rising[-1]
        assert np.count_nonzero(np.diff(rising)) == 1
        peak = one(rows, quantity="closed form, integer [tokens]")["value"]
        assert np.argmax(theory) == peak
        assert abs(one(rows, quantity="closed form [tokens]")["value"] - peak) < 1


def test_simulated_goodput_agrees_with_theory_at_every_point():
    """Intervals that hold at all points at once, and that are narrow enough to tell."""
    rows = measured("paper-a-fig3")
    theory = column(pick(rows, quantity="theory [tokens/s]"))
    simulated = pick(rows, quantity="simulated [tokens/s]")
    half_width = np.array([row["half_width"] for row in simulated])
    assert len(theory) == len(simulated) == 100
    error = np.abs(column(simulated) - theory)
    assert np.all(error <= half_width + 1e-9 * theory)
    assert np.all(half_width < 0.06 * theory)
    # Nothing is random without drafts; with drafts something is.
    assert [row["draft_length"] > 0 for row in simulated] == (half_width > 1e-9).tolist()


def test_optimal_length_rises_with_verification_and_acceptance_and_falls_with_token_latency():
    found = groups(measured("paper-a-fig4"), "reading", "varied")
    assert len(found) == 5
    for (_, varied), rows in found.items():
        real = column(pick(rows, quantity="closed form [tokens]"))
        best = column(pick(rows, quantity="best integer [tokens]"))
        sign = -1 if varied == "token latency [ms]" else 1
        assert np.all(sign * np.diff(real) > 0)
        assert np.all(sign * np.diff(best) >= 0)
        assert sign * (best[-1] - best[0]) >= 2
        assert np.all(np.abs(best - real) < 1)


def test_verification_is_charged_by_the_reported_fits():
    for pair, (fixed, slope) in page.REPORTED_FITS.items():
        rows = pick(measured("paper-a-fig5"), pair=pair)
        assert column(rows) == pytest.approx([fixed + slope * row["devices"] for row in rows])


def test_multi_spin_beats_cen_spin_beats_p2p_spin_unless_the_server_drafts_for_all_at_once():
    rows = pick(measured("paper-a-fig6"), quantity=GOODPUT)
    found = groups(rows, "pair", "reading", "devices", "shortest")
    assert len(found) == 12
    for setting in found.values():
        goodput = {row["deployment"]: row["value"] for row in setting}
        assert goodput["Multi-SPIN"] > 2 * goodput["Cen-SPIN"]
        assert goodput["Cen-SPIN"] > goodput["P2P-SPIN"]
        assert goodput["Multi-SPIN"] > goodput["Cen-SPIN, serial"]
        assert goodput["Multi-SPIN"] < goodput["Cen-SPIN, batched"]


def test_hete_is_highest_at_every_bandwidth_and_gains_most_at_the_smallest():
    rows = measured("paper-a-fig7")
    for cell in groups(
        pick(rows, quantity=GOODPUT), "pair", "reading", "shortest", "band [MHz]"
    ).values():
        goodput = {row["scheme"]: row["value"] for row in cell}
        assert len(goodput) == 4
        assert max(goodput, key=goodput.get) == "Hete"
        assert min(goodput, key=goodput.get) == "Fixed"
    for line in groups(
        pick(rows, quantity=GOODPUT), "pair", "reading", "shortest", "scheme"
    ).values():
        assert np.all(np.diff(column(line)) > 0)  # more band, more goodput ...
        low, middle, high = column(line)  # at 5, 10 and 20 MHz
        assert (high - middle) / 10 < (middle - low) / 5  # ... ever less
    for line in groups(
        pick(rows, quantity="gain over Fixed [%]", scheme="Hete"), "pair", "reading", "shortest"
    ).values():
        gains = column(line)
        assert gains[0] > 60
        assert np.all(np.diff(gains) < 0)


def test_the_gain_over_fixed_grows_with_the_number_of_devices():
    rows = measured("paper-a-fig8")
    for cell in groups(
        pick(rows, quantity=GOODPUT), "pair", "reading", "shortest", "devices"
    ).values():
        goodput = {row["scheme"]: row["value"] for row in cell}
        assert max(goodput, key=goodput.get) == "Hete"
    gains = pick(rows, quantity="gain over Fixed [%]", scheme="Hete")
    for line in groups(gains, "pair", "reading", "shortest").values():
        assert line[0]["devices"] < line[-1]["devices"]
        assert line[-1]["value"] > line[0]["value"] > 0


@pytest.mark.parametrize("name", ["paper-a-table1", "paper-b-table1"])
def test_simulated_acceptance_rates_are_those_of_the_tables(name):
    rows = measured(name)
    preset, simulated = pick(rows, quantity="preset"), pick(rows, quantity="simulated")
    assert len(preset) == len(simulated) == 8
    for stated, played in zip(preset, simulated):
        assert abs(stated["value"] - played["value"]) <= played["half_width"] < 0.03
        if name == "paper-a-table1":
            reported = page.REPORTED_RATES[stated["pair"]][stated["task"]]
            assert stated["value"] == float(reported.split(" ±")[0])


# ---- paper B -------------------------------------------------------------------------------------


def test_goodput_rises_with_downlink_power_and_saturates():
    rows = pick(measured("paper-b-power"), quantity=GOODPUT)
    found = groups(rows, "pair", "uplink [dBm]", "solver")
    assert len(found) == 8
    for line in found.values():
        slope = np.diff(column(line)) / np.diff([row["downlink [dBm]"] for row in line])
        assert np.all(slope > -1e-9)
        assert slope[-1] < 0.75 * slope.max()
    lengths = pick(measured("paper-b-power"), quantity="mean draft length [tokens]")
    for line in groups(pick(lengths, **{"uplink [dBm]": 10.0}), "pair", "solver").values():
        assert line[-1]["value"] > line[0]["value"]


def test_corrections_move_to_the_downlink_as_its_power_grows_and_some_stay_on_the_uplink():
    rows = measured("paper-b-split")
    for line in groups(
        pick(rows, quantity="downlink share"), "pair", "uplink [dBm]", "solver"
    ).values():
        share = column(line)
        assert share[0] < 0.05
        assert share[-1] > 0.5
        assert np.all(np.diff(share) >= 0)
    remaining = pick(rows, quantity="uplink", **{"downlink [dBm]": 45.0})
    assert len(remaining) == 8
    assert np.all(column(remaining) > 0.1)


def test_optimal_modes_are_best_and_all_downlink_is_closer_to_them_with_more_power():
    rows = measured("paper-b-modes")
    gains = pick(rows, quantity="gain of optimal modes [%]")
    assert len(gains) == 72
    assert np.all(column(gains) > 0)
    downlink = groups(pick(gains, rule="downlink"), "pair", "devices", "solver")
    for weak, strong in downlink.values():
        assert (weak["ratio"], strong["ratio"]) == (4.0, 16.0)
        assert strong["value"] < weak["value"]


def test_deadline_is_the_best_draft_length_scheme_and_communication_matters_when_it_is_scarce():
    rows = pick(measured("paper-b-lengths"), quantity=GOODPUT)
    for cell in groups(rows, "pair", "uplink [dBm]", "ratio").values():
        goodput = {row["solver"]: row["value"] for row in cell}
        assert len(goodput) == 4
        assert max(goodput, key=goodput.get) == "deadline"
    for pair in values(rows, "pair"):
        keys = {"pair": pair, "uplink [dBm]": 10.0, "ratio": 1.0}
        blind = one(rows, solver="computation_only", **keys)["value"]
        assert one(rows, solver="greedy", **keys)["value"] > 1.1 * blind
    for line in groups(rows, "pair", "uplink [dBm]", "solver").values():
        assert np.all(np.diff(column(line)) >= 0)


# ---- ours ----------------------------------------------------------------------------------------


def test_greedy_loses_where_the_worst_device_fades():
    losses = pick(measured("regret"), quantity="loss of greedy [%]")
    for rows in groups(losses, "pair", "ratio").values():
        *groups_by_snr, overall = rows
        assert "worst uplink [dB]" not in overall
        assert groups_by_snr[0]["value"] > 20 > 3 > groups_by_snr[-1]["value"]
        assert overall["value"] > overall["half_width"]


def test_the_learned_agent_stays_with_deadline_where_greedy_does_not():
    rows = pick(measured("learned"), quantity="ratio to deadline")
    assert np.all(column(pick(rows, policy="distilled")) > 0.96)
    scarce = pick(rows, policy="greedy", **{"uplink [dBm]": 10.0})
    assert len(scarce) == 2
    assert np.all(column(scarce) < 0.9)


def test_a_wrong_price_costs_and_a_blind_policy_scores_by_the_horizon():
    rows = measured("sensitivity")
    for line in groups(pick(rows, quantity="ratio to no price"), "uplink [dBm]").values():
        low, right, high = column(line)
        assert right > 0.97
        assert max(low, high) < 0.95
    goodput = pick(rows, quantity=GOODPUT, **{"uplink [dBm]": 10.0})
    short, long = column(pick(goodput, policy="4 tokens"))
    assert long < 0.9 * short
    for seconds in (5.0, 60.0):
        deadline = one(goodput, policy="deadline", **{"horizon [s]": seconds})["value"]
        assert deadline > one(goodput, policy="greedy", **{"horizon [s]": seconds})["value"]


# ---- the command, and the page -------------------------------------------------------------------


def run(*arguments):
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True
    )


def test_one_figure_is_three_files(tmp_path):
    done = run("paper-a-fig4", "--quick", "--output", tmp_path, "--workers", 1)
    assert done.returncode == 0, done.stderr
    assert f"PNG, SVG and CSV in {tmp_path}: paper-a-fig4" in done.stdout
    files = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert files == {f"paper-a-fig4.{suffix}" for suffix in ("png", "svg", "csv")}
    assert iio.imread(tmp_path / "paper-a-fig4.png").shape[1] == 936  # 7.2 inches
    assert "</svg>" in (tmp_path / "paper-a-fig4.svg").read_text()
    stored, again = tables.read(tmp_path / "paper-a-fig4.csv"), measured("paper-a-fig4")
    assert column(stored) == pytest.approx(column(again), rel=1e-5)


def test_an_unknown_name_is_answered_with_the_names():
    done = run("fig99")
    assert done.returncode != 0
    assert "name = 'fig99': must be one of 'paper-a-table1', 'paper-a-fig3'" in done.stderr
    assert all(repr(name) in done.stderr for name in FIGURES)


def test_the_page_takes_no_numbers_of_a_smoke_run():
    done = run("paper-a-fig5", "--quick", "--docs")
    assert done.returncode != 0
    assert "leave out --quick" in done.stderr


def test_results_are_kept_by_their_arguments(tmp_path):
    *_, first, second = FIGURES["paper-a-fig5"].jobs(True)
    kept, arguments = remembered(first, tmp_path), dict(first.arguments)
    assert not kept.check_call_in_cache(**arguments)
    assert kept(**arguments) == first()
    assert kept.check_call_in_cache(**arguments)
    assert not kept.check_call_in_cache(**dict(second.arguments))
    assert job(first.function, **arguments) == first


def test_tables_are_read_as_they_were_written(tmp_path):
    rows = [
        tables.exact({"pair": "a", "devices": 3}, "x", 0.5),
        tables.mean({"pair": "b"}, "y", [1.0, 2.0, 3.0]),
    ]
    tables.write(tmp_path / "a.csv", rows)
    found = tables.read(tmp_path / "a.csv")
    assert found[0] == rows[0]
    assert found[1] == rows[1] | {"half_width": pytest.approx(rows[1]["half_width"], rel=1e-5)}
    assert found[1]["half_width"] == pytest.approx(4.302653 / np.sqrt(3), rel=1e-5)
    with pytest.raises(ValueError, match="must fit one row, not 2"):
        one(found)


TEXT = page.PAGE.read_text("utf8")


@pytest.mark.parametrize("name", FIGURES)
def test_the_page_shows_the_stored_table_and_picture(name):
    shown = re.search(f"<!-- {name} -->\n\n(.*?)\n\n<!-- end {name} -->", TEXT, re.DOTALL)
    assert shown is not None
    assert shown[1] == FIGURES[name].report(tables.read(page.FOLDER / f"{name}.csv"))
    assert f"](figures/{name}.png)" in TEXT
    assert (page.FOLDER / f"{name}.png").is_file()


def test_what_is_stored_is_small_and_complete():
    files = list(page.FOLDER.iterdir())
    assert {path.stem for path in files} == set(FIGURES)
    assert sum(path.stat().st_size for path in files) < 3e6


def test_refreshing_the_page_leaves_the_rest_of_it_alone(tmp_path):
    copy = tmp_path / "reproduction.md"
    copy.write_text(TEXT, "utf8")
    page.refresh({"regret": lambda rows: "none"}, copy)
    assert copy.read_text("utf8") == re.sub(
        "(<!-- regret -->\n\n).*?(\n\n<!-- end regret)", r"\1none\2", TEXT, flags=re.DOTALL
    )
    page.refresh({name: figure.report for name, figure in FIGURES.items()}, copy)
    assert copy.read_text("utf8") == TEXT
