"""What exists is frozen: see :mod:`golden_hashes` for what is hashed, and where bits may differ."""

import json

import golden_hashes
import pytest

STORED = json.loads(golden_hashes.HASHES.read_text())
CASES = golden_hashes.cases()


@pytest.fixture(scope="session")
def known():
    """The hashes of this platform; none where its elementary functions round in their own way."""
    return STORED["sha256"].get(golden_hashes.platform(), {})


def test_every_case_is_stored():
    assert sorted(STORED["totals"]) == sorted(CASES)
    assert sorted(set().union(*STORED["sha256"].values())) == sorted(CASES)


@pytest.mark.parametrize("name", sorted(CASES))
def test_nothing_changed(name, known):
    result = CASES[name]()
    if name in known:
        assert result["sha256"] == known[name]
    assert result["totals"] == pytest.approx(STORED["totals"][name], rel=1e-9, abs=1e-9)


def test_a_changed_bit_is_noticed():
    digests = [golden_hashes.Digest() for _ in range(3)]
    values = [1.0, 1.0, 1.0000000000000002]
    for digest, value in zip(digests, values):
        digest.add({"reward": value})
    same, other = digests[1].result(), digests[2].result()
    assert digests[0].result() == same
    assert same["sha256"] != other["sha256"]
