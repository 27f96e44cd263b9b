"""Counts of the host's work in a few cases equal those of `counts.json`, so that a count that grows is noticed."""

import json
import subprocess
import sys
from array import array

import pytest
from counts import DEVICES, FILE, PYTHON, differences, instructions_of, measured
from requirements import missing

from optirs_web.translations import missing_compiler

EXPECTED = json.loads(FILE.read_text("utf-8"))


@pytest.mark.parametrize("name", DEVICES)
def test_the_host_does_no_more_than_expected(name, open_device):
    info = open_device(name).info
    if info.kind not in ("cpu", "software"):
        pytest.skip("the expected counts are those of a software adapter, which takes other kernels than a GPU")
    actual = differences(EXPECTED[name], measured(name), EXPECTED["python"] == PYTHON)
    assert not actual, "\n".join(actual)


def test_kernels_have_no_more_instructions_than_expected():
    if why_not := missing_compiler("spirv"):
        missing("naga", why_not)
    actual = differences(EXPECTED["spirv"], measured("spirv"))
    assert not actual, "\n".join(actual)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--functions", "replay"], "name it"), (["cpu", "--functions", "none"], "there is no case 'none': record, ")],
)
def test_the_calls_by_function_are_of_a_case_on_a_device(arguments, message):
    before = FILE.read_bytes()
    done = subprocess.run([sys.executable, FILE.with_suffix(".py"), *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert message in done.stderr
    assert FILE.read_bytes() == before


def test_instructions_and_barriers_are_counted_by_their_lengths():
    module = [0x07230203, 0x10000, 0, 9, 0, 2 << 16 | 17, 1, 3 << 16 | 14, 0, 1, 1 << 16 | 56]
    assert instructions_of(array("I", [*module, 4 << 16 | 224, 2, 2, 0]).tobytes()) == (4, 1)


def counts(calls):
    return {"replay": {"calls": calls, "submits": 1}}


@pytest.mark.parametrize(("calls", "said"), [(101, "101 calls, 100 were expected"), (89, "only 89 calls"),
                                             (100, None), (90, None)])  # fmt: skip
def test_growth_and_a_large_fall_are_told(calls, said):
    actual = differences(counts(100), counts(calls))
    assert actual == [] if said is None else len(actual) == 1 and said in actual[0] and "`make counts`" in actual[0]


def test_other_versions_of_python_may_call_somewhat_more():
    assert not differences(counts(100), counts(102), is_same_python=False)
    assert differences(counts(100), counts(103), is_same_python=False)
    assert differences({"replay": {"submits": 1}}, {"replay": {"submits": 2}}, is_same_python=False)


def test_a_case_that_is_not_in_the_file_is_told():
    assert len(differences({}, counts(100))) == 2
