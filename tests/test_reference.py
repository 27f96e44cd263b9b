"""The reference that `make docs` makes: the annotations of public names on its pages."""

import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest
from requirements import missing

import optirs_web as ow

SCRIPT = Path(__file__).parent.parent / "scripts" / "make_reference.py"


@pytest.fixture
def tensor_page():
    """The part of the reference about `Tensor`."""
    if find_spec("pdoc") is None:
        missing("pdoc", "pip install '.[docs]'")
    from pdoc import doc

    runpy.run_path(str(SCRIPT))
    return doc.Class("optirs_web", "Tensor", ow.Tensor, (ow.Tensor.__module__, "Tensor"))


@pytest.mark.needs("pdoc")
def test_annotations_mean_what_they_mean_in_their_module_though_tensors_have_methods_of_these_names(tensor_page):
    assert "create_graph: bool = False" in str(tensor_page.get("backward").signature)
    assert tensor_page.get("ndim").annotation is int
    assert tensor_page.get("requires_grad").annotation is bool
