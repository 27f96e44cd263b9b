"""The state of a page is in its address: Share copies it, Back and Forward follow it, hostile ones do no harm."""

import re

import pytest
from playwright.sync_api import expect

COPIED = "navigator.clipboard.readText()"


@pytest.fixture
def shared(page):
    """`shared()`: the address that Share puts into the clipboard."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])

    def share():
        page.get_by_role("button", name="Share").click()
        expect(page.locator(".toast").last).to_have_text("Link copied")
        return page.evaluate(COPIED)

    return share


def refused(page):
    """What a page says of an address that it cannot read."""
    return page.locator(".toast", has_text="Parts of the address could not be read and were left out")


@pytest.mark.parametrize("path", ["/", "/digits", "/gpt", "/race", "/playground", "/shaders", "/bench", "/checkpoints"])
def test_every_page_has_one_share_button_which_works_without_webgpu(page, site, path, shared):
    page.add_init_script("delete Navigator.prototype.gpu")
    page.goto(f"{site}{path}")
    assert shared() == f"{site}{path}"


def test_the_devices_own_sheet_is_used_where_there_is_one(page, site):
    page.add_init_script("navigator.share = async (what) => { window.given = what; }")
    page.goto(f"{site}/bench?rounds=15&embed=1#nothing")
    page.evaluate("document.getElementById('share').click()")
    page.wait_for_function("window.given")
    assert page.evaluate("window.given") == {"title": "Bench · OptiRS-Web", "url": f"{site}/bench?rounds=15#nothing"}


def test_the_rounds_of_the_bench_are_in_the_address(page, site, shared):
    page.goto(f"{site}/bench?rounds=31")
    expect(page.get_by_label("Rounds")).to_have_value("31")
    page.get_by_label("Rounds").select_option("15")
    expect(page).to_have_url(f"{site}/bench?rounds=15")
    page.get_by_label("Rounds").select_option("7")  # as it is at first
    expect(page).to_have_url(f"{site}/bench")
    assert shared() == f"{site}/bench"


def test_a_run_with_the_seed_of_the_address_is_the_same_run(page, site, shared):
    address = f"{site}/checkpoints?optimizer=adam&seed=11"
    losses = []
    for _ in range(2):
        page.goto("about:blank")
        page.goto(address)
        expect(page.locator("#recipe")).to_have_text("adam, seed 11, MLP 64-256-10")
        page.get_by_role("button", name="Train 5 epochs").click()
        expect(page.locator("#status")).to_have_text("Trained at epoch 5")
        losses.append(page.locator("#train-loss").inner_text() + page.locator("#test-loss").inner_text())
    assert losses[0] == losses[1]
    assert shared() == address
    page.get_by_label("Seed").fill("12")
    page.get_by_role("button", name="Start a new run").click()
    expect(page).to_have_url(f"{site}/checkpoints?optimizer=adam&seed=12")


def test_back_and_forward_follow_the_shader_and_keep_the_languages(page, site):
    page.goto(f"{site}/shaders?right=opencl#matmul")
    expect(page.locator("#name")).to_have_text("matmul")
    page.get_by_role("link", name="relu", exact=True).click()
    expect(page.locator("#name")).to_have_text("relu")
    page.go_back()
    expect(page.locator("#name")).to_have_text("matmul")
    expect(page.locator("#right-target")).to_have_value("opencl")
    page.go_forward()
    expect(page.locator("#name")).to_have_text("relu")
    expect(page).to_have_url(f"{site}/shaders?right=opencl#relu")


def test_back_returns_to_the_example_before(page, site):
    page.goto(f"{site}/playground#spirals")
    first = page.locator(".cm-line").first
    expect(first).to_have_text('"""A network untangles two spirals"""')
    page.get_by_label("Example").select_option("memory")
    expect(page).to_have_url(f"{site}/playground#memory")
    page.go_back()
    expect(first).to_have_text('"""A network untangles two spirals"""')
    page.go_forward()
    expect(first).to_have_text('"""Watch the GPU\'s memory"""')


def test_the_link_past_the_navigation_leaves_the_state_as_it_is(page, site):
    page.goto(f"{site}/shaders#matmul")
    expect(page.locator("#name")).to_have_text("matmul")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    expect(page).to_have_url(f"{site}/shaders#matmul")
    expect(page.locator("#name")).to_have_text("matmul")


def test_an_edited_program_is_in_the_address(page, site):
    page.goto(f"{site}/playground")
    expect(page.locator(".cm-line").first).to_have_text('"""Hello, tensor"""')
    page.locator(".cm-content").press("ControlOrMeta+a")
    page.keyboard.insert_text("print('mine')")
    expect(page).to_have_url(re.compile("#code="))
    page.reload()
    expect(page.locator(".cm-line").first).to_have_text("print('mine')")
    expect(page.locator("#shared")).to_be_visible()
    page.get_by_label("Example").select_option("hello_tensor")
    expect(page).to_have_url(f"{site}/playground")


@pytest.mark.parametrize(
    ("address", "keys"),
    [
        ("checkpoints?seed=1e9999", "seed"),
        ("checkpoints?seed=1.5&optimizer=__proto__", "optimizer, seed"),
        ("checkpoints?seed=<img src=x onerror=alert(1)>", "seed"),
        ("checkpoints?seed=" + "9" * 5000, "seed"),
        ("checkpoints?v=2&seed=7", "optimizer, seed"),
        ("bench?rounds=1000000", "rounds"),
        ("bench?rounds=constructor", "rounds"),
        ("shaders?left=toString&right=nothing#adam", "left, right"),
        ("shaders#%E0%A4%A", "shader"),
        ("shaders#../../etc/passwd", "shader"),
        ("playground#code=%%%", "code"),
        ("playground#code=" + "A" * 20_000, "code"),
        ("playground#<script>", "example"),
    ],
)
def test_a_hostile_address_is_said_and_the_page_goes_by_its_default(page, site, address, keys):
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    page.goto(f"{site}/{address}")
    expect(refused(page)).to_have_text(f"Parts of the address could not be read and were left out: {keys}")
    defaults = {
        "checkpoints": ("#seed", "0"),
        "bench": ("#rounds", "7"),
        "shaders": ("#left-target", "source"),
        "playground": ("#example", "hello_tensor"),
    }
    selector, value = defaults[re.split("[?#]", address)[0]]
    expect(page.locator(selector)).to_have_value(value)


def test_a_small_link_does_not_unpack_to_a_large_program(page, site):
    bomb = """async () => {
        const stream = new Blob(["a".repeat(5e6)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
        const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
        return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
    }"""
    page.goto(f"{site}/bench")
    packed = page.evaluate(bomb)
    assert len(packed) < 16_000
    page.goto(f"{site}/playground#code={packed}")
    expect(refused(page)).to_have_text(re.compile("left out: code$"))


def test_a_program_that_is_too_long_for_a_link_is_said(page, site):
    page.goto(f"{site}/playground")
    expect(page.locator(".cm-line").first).to_have_text('"""Hello, tensor"""')
    page.locator(".cm-content").press("ControlOrMeta+a")
    noise = page.evaluate("() => Array.from({length: 30000}, () => Math.random().toString(36)[2] ?? 'x').join('')")
    page.keyboard.insert_text(f"# {noise}")
    page.get_by_role("button", name="Share").click()
    expect(page.locator(".toast")).to_have_text("Too long for a link: code")
