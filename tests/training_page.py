"""A network that trains in a page, and pages in which a test may change what Python finds."""

import textwrap
from contextlib import closing, contextmanager

from chromium import BrowserPython, chromium_context

__all__ = ["CATCHING", "WITHOUT_JSPI", "fresh_page", "with_training"]

TRAINING = """
import array, json
import optirs_web as ow

def make(**options):
    ow.manual_seed(0)
    device = ow.device("webgpu")
    params = [ow.Parameter(one) for one in (ow.randn((64, 32)) * 0.1, ow.zeros((32,)), ow.randn((32, 10)) * 0.1)]
    w0, b0, w1 = params
    optimizer = ow.optim.AdamW(params, lr=0.01)
    def train_step(x, labels):
        optimizer.zero_grad()
        loss = ow.cross_entropy((x @ w0 + b0).relu() @ w1, labels)
        loss.backward()
        optimizer.step()
        return loss
    return params, optimizer, ow.compile(train_step, **options)

def batch(number):
    pixels = array.array("f", ((number + 7 * one) % 13 / 13 for one in range(16 * 64)))
    return memoryview(pixels).cast("B").cast("f", [16, 64]), [one % 10 for one in range(16)]
"""

# Keeps the last device that was opened, for a test to destroy.
CATCHING = """
const request = GPUAdapter.prototype.requestDevice;
GPUAdapter.prototype.requestDevice = async function (...given) {
  return (globalThis.lastDevice = await request.apply(this, given));
};
"""

WITHOUT_JSPI = "delete WebAssembly.Suspending; delete WebAssembly.promising;"


def with_training(*programs):
    """The programs one after the other, after what makes the network."""
    return TRAINING + "".join(map(textwrap.dedent, programs))


@contextmanager
def fresh_page(browser, init=""):
    """A page of its own, after a script that changes what Python finds there."""
    with chromium_context(browser) as page:
        page.add_init_script(init)
        with closing(BrowserPython(page)) as python:
            yield python
