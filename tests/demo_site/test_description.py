"""The demo's API against its own OpenAPI description: Schemathesis sends what it allows and what it does not."""

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import schemathesis
from demo_servers import TOKEN, checkpoint
from hypothesis import settings
from hypothesis.strategies import sampled_from

from optirs_web.demo_site.app import create_app
from optirs_web.demo_site.settings import Rate, Settings

# Schemathesis makes a test of each operation when this module is imported, so the application is there by then.
_FOLDER = TemporaryDirectory()
_UNLIMITED = Rate(per_second=1e9, burst=10**9)
APP = create_app(
    Settings(
        data=Path(_FOLDER.name) / "data",
        token=TOKEN,
        allowed_hosts=frozenset({"testserver"}),
        rate=_UNLIMITED,
        write_rate=_UNLIMITED,
    )
)
# OpenAPI has no words for what is inside a file.
schemathesis.openapi.media_type("application/octet-stream", sampled_from([checkpoint(), checkpoint(step=1)]))
schema = schemathesis.openapi.from_asgi("/api/openapi.json", APP)


@pytest.fixture(scope="module", autouse=True)
def folder():
    with _FOLDER, closing(APP.state.store):
        yield


@schema.parametrize()
@settings(max_examples=25)
def test_an_operation_answers_as_described(case):
    case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"})
