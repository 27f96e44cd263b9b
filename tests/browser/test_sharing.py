"""The state of a page is in its address: Share copies it, Back and Forward follow it, hostile ones do no harm."""

import functools
import io
import re
import shutil
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from chromium import SCREENSHOTS, SLOW
from demo_servers import running_server
from PIL import Image
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
    """Return the locator of a page's message about an address that it cannot read."""
    return page.locator(".toast", has_text="Ignored invalid parts of the address")


@pytest.mark.parametrize(
    "path", ["/", "/digits", "/gpt", "/race", "/playground", "/shaders", "/bench", "/check", "/checkpoints"]
)
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
        expect(page.locator("#status")).to_have_text("Trained to epoch 5")
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
    expect(first).to_have_text('"""Watch GPU memory"""')


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
    expect(page.locator("#shared")).to_be_hidden()  # it is the visitor's own
    page.get_by_role("button", name="Reset to example").click()
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
        ("digits?lr=-1&optimizer=eval&seed=0x10#drawing=AAAA", "optimizer, lr, seed, drawing"),
        ("race?racers=adam:NaN,sgd:1&start=1&noise=1e999&surface=valueOf", "surface, racers, start, noise"),
        ("race?racers=__proto__:1", "racers"),
    ],
)
def test_a_hostile_address_is_said_and_the_page_goes_by_its_default(page, site, address, keys):
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    page.goto(f"{site}/{address}")
    expect(refused(page)).to_have_text(f"Ignored invalid parts of the address: {keys}")
    defaults = {
        "digits": ("#optimizer", "AdamW"),
        "race": ("#surface", "rosenbrock"),
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
    expect(refused(page)).to_have_text(re.compile("address: code$"))


def test_a_program_that_is_too_long_for_a_link_is_said(page, site):
    page.goto(f"{site}/playground")
    expect(page.locator(".cm-line").first).to_have_text('"""Hello, tensor"""')
    page.locator(".cm-content").press("ControlOrMeta+a")
    noise = page.evaluate("() => Array.from({length: 30000}, () => Math.random().toString(36)[2] ?? 'x').join('')")
    page.keyboard.insert_text(f"# {noise}")
    page.get_by_role("button", name="Share").click()
    expect(page.locator(".toast")).to_have_text("Too long for a link: code")


# The same address, the same numbers.

RECORD = """
const Own = Worker;
window.losses = [];
window.Worker = class extends Own {
    constructor(...options) {
        super(...options);
        this.addEventListener("message", ({ data }) => {
            if (data.kind === "choices") {
                losses.length = 0;
                window.seed = data.payload.seed;
            }
            if (data.kind === "steps") losses.push(...data.payload.losses);
        });
    }
};
"""


def losses_of(page, address, count=8):
    """The first losses of the run that an address describes."""
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_url(address)
    expect(page.locator("#status")).to_have_attribute("data-state", "running", timeout=SLOW)
    seed = int(re.search("seed=([0-9]+)", address)[1])
    page.wait_for_function(
        "([seed, count]) => window.seed === seed && losses.length >= count", arg=[seed, count], timeout=SLOW
    )
    return page.evaluate("count => losses.slice(0, count)", count)


def test_a_shared_training_on_digits_is_the_same_training(page, site, shared):
    page.add_init_script(RECORD)
    address = f"{site}/digits?optimizer=SGD&lr=0.05&schedule=cosine&seed=41"
    first = losses_of(page, address)
    expect(page.locator("#optimizer")).to_have_value("SGD")
    expect(page.locator("#lr-value")).to_have_text("0.05")
    expect(page.locator("#schedule")).to_have_value("cosine")
    expect(page).to_have_url(address)  # though nobody has done anything on the page
    assert shared() == address
    assert losses_of(page, address) == first
    assert losses_of(page, address.replace("seed=41", "seed=42")) != first


def test_a_drawing_is_in_the_address_and_is_recognised_there(page, site, shared):
    page.goto(f"{site}/digits")
    expect(page.locator("#status")).to_have_attribute("data-state", "running", timeout=SLOW)
    pad = page.locator("#pad")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 20, steps=5)
    page.mouse.up()
    expect(page).to_have_url(re.compile("#drawing="))
    link = shared()
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator("#verdict")).to_have_text(re.compile(r"\d"), timeout=SLOW)
    expect(page.get_by_role("button", name="Clear")).to_be_enabled()
    page.get_by_role("button", name="Clear").click()
    expect(page).to_have_url(f"{site}/digits")


def test_a_shared_writer_is_the_same_training_with_the_same_prompt(page, site, shared):
    page.add_init_script(RECORD)
    page.goto(f"{site}/gpt")
    expect(page.locator("#status")).to_have_attribute("data-state", "running", timeout=SLOW)
    page.get_by_label("Temperature").fill("0.9")
    page.locator("#prompt").fill("“Ça va?” & <b>co</b>")
    page.locator("#size").select_option("small")
    expect(page).to_have_url(re.compile("temperature=0.9.*#prompt="))
    link = shared().replace("?", "?seed=9&", 1)  # the usual seed is not in the address
    first = losses_of(page, link, 3)
    expect(page.locator("#prompt")).to_have_value("“Ça va?” & <b>co</b>")
    expect(page.locator("#temperature-value")).to_have_text("0.9")
    expect(page).to_have_url(re.compile("seed=9&"))
    assert losses_of(page, link, 3) == first


def test_the_address_follows_the_seed_of_a_run_that_starts_over(open_training):
    page = open_training("/digits")
    for seed in [1, 2]:
        page.get_by_role("button", name="Start over").click()
        expect(page).to_have_url(re.compile(rf"\?seed={seed}$"))


def standing(page, address, steps=2):
    """The table of a race after some steps."""
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator("#status")).to_have_text("Ready")
    for step in range(1, steps + 1):
        page.get_by_role("button", name="One step").click()
        expect(page.locator("#steps")).to_have_text(str(step))
    return sorted(page.locator("#standing tbody tr").all_inner_texts())


def test_a_shared_race_is_the_same_race(page, site, shared):
    address = f"{site}/race?surface=valley&racers=momentum:0.02,lion:0.01&start=-3,2.5&noise=3&seed=5"
    first = standing(page, address)
    assert [row.split("\t")[0].strip() for row in first] == ["2\nMomentum SGD", "8\nLion"]
    assert shared() == address
    assert standing(page, address) == first
    assert standing(page, address.replace("seed=5", "seed=6")) != first


def test_back_returns_to_the_landscape_before(page, site):
    page.goto(f"{site}/race?racers=adam:0.5&start=1,1")
    expect(page.locator("#status")).to_have_text("Ready")
    page.get_by_label("Landscape").select_option("beale")
    expect(page).to_have_url(re.compile("surface=beale"))
    expect(page.get_by_label("Start x")).to_have_value("1")
    page.go_back()
    expect(page.get_by_label("Landscape")).to_have_value("rosenbrock")
    expect(page.get_by_label("Learning rate of Adam", exact=True)).to_have_value("0.5")
    expect(page.locator("#standing tbody tr")).to_have_count(1)
    page.go_forward()
    expect(page.get_by_label("Landscape")).to_have_value("beale")


def test_a_program_that_came_with_the_address_of_the_first_page_waits_for_its_visitor(page, site, shared):
    page.goto(site)
    expect(page.locator("#loss")).not_to_have_text("–", timeout=SLOW)
    page.locator(".cm-content").press("ControlOrMeta+a")
    page.keyboard.insert_text("print('was run')")
    expect(page).to_have_url(re.compile("#code="))
    link = shared()
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator("#shared")).to_contain_text("Read it before you run it")
    expect(page.locator("#status")).to_have_text("Press Run to start the program", timeout=SLOW)
    expect(page.locator("#console")).to_be_hidden()
    page.locator("#run").click()
    expect(page.locator("#console")).to_have_text("was run\n")
    expect(page.locator("#shared")).to_be_hidden()


# Pictures, frames, cards.


def size_of(picture):
    """Width and height of a PNG, and how many colours it has."""
    image = Image.open(picture)
    assert image.format == "PNG"
    return image.size, len(image.convert("RGB").getcolors(1 << 24))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", "optirs-web-home.png"),
        ("/race", "optirs-web-race-rosenbrock-0-steps.png"),
        ("/digits", "optirs-web-digits-.*.png"),
    ],
)
def test_what_is_drawn_is_saved_as_a_picture(page, site, path, name, tmp_path):
    page.goto(f"{site}{path}")
    button = page.get_by_role("button", name="Save picture")
    expect(page.locator("#status")).to_have_attribute("data-state", re.compile("idle|running"), timeout=SLOW)
    with page.expect_download() as download:
        button.click()
    assert re.fullmatch(name, download.value.suggested_filename)
    saved = tmp_path / "picture.png"
    download.value.save_as(saved)
    (width, height), colours = size_of(saved)
    assert 600 <= width <= 3000
    assert 800 <= height <= 1400
    assert colours > 20
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    shutil.copy(saved, SCREENSHOTS / f"picture-{path.strip('/') or 'home'}.png")


def test_a_page_in_a_frame_has_neither_head_nor_foot_but_a_link_to_the_whole(page, site, screenshot):
    page.goto(f"{site}/race?embed&surface=beale")
    for part in (".masthead", ".colophon", ".page-head"):
        expect(page.locator(part)).to_be_hidden()
    link = page.get_by_role("link", name="Open the full page")
    expect(page.locator("#status")).to_have_text("Ready")
    expect(link).to_have_attribute("href", f"{site}/race?surface=beale")
    page.get_by_label("Seed").fill("4")
    expect(link).to_have_attribute("href", f"{site}/race?surface=beale&seed=4")
    expect(page).to_have_url(f"{site}/race?surface=beale&seed=4&embed")
    for width in (375, 768, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        screenshot(page, f"embed-{width}")


@pytest.fixture
def other_site(tmp_path):
    """The origin of another site, whose page has an empty frame."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text("<!doctype html><link rel=icon href=data:,><iframe></iframe>")
    handler = functools.partial(QuietHandler, directory=tmp_path / "other")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Quiet."""


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_frame_of_another_site_shows_a_page_only_where_that_is_allowed(page, tmp_path, other_site, is_allowed):
    ancestors = [other_site] if is_allowed else []
    with running_server(tmp_path / "demo", frame_ancestors=ancestors) as (_, url):
        page.goto(other_site)
        embedded = f"{url.rstrip('/')}/shaders?embed#adam"
        page.evaluate("address => { document.querySelector('iframe').src = address; }", embedded)
        frame = page.frame_locator("iframe")
        if is_allowed:
            expect(frame.locator("#name")).to_have_text("adam", timeout=SLOW)
            expect(frame.get_by_role("link", name="Open the full page")).to_be_visible()
        else:
            expect(frame.locator("body")).not_to_contain_text("OptiRS")
            expect(frame.locator("#name")).to_have_count(0)
            response = page.request.get(embedded)
            assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
        page.complaints.clear()


def test_every_page_has_a_card_where_its_public_address_is_known(page, tmp_path):
    known = "https://example.org/demo/"
    with running_server(tmp_path / "demo", public=known) as (_, url):
        for path in ("", "digits", "gpt", "race", "playground", "shaders", "bench", "compare", "check", "checkpoints"):
            content = page.request.get(f"{url.rstrip('/')}/{path}").text()
            facts = dict(re.findall(r'<meta (?:property|name)="((?:og|twitter):[^"]*)" content="([^"]*)">', content))
            assert facts["og:url"] == known + path
            assert facts["og:title"]
            assert facts["og:description"]
            assert facts["twitter:card"] == "summary_large_image"
            picture = page.request.get(facts["og:image"].replace(known, f"{url.rstrip('/')}/"))
            assert (picture.headers["content-type"], len(picture.body()) < 150_000) == ("image/png", True), path
            assert size_of(io.BytesIO(picture.body()))[0] == (1200, 630)


def test_without_a_public_address_a_page_has_no_card_that_could_be_wrong(page, site):
    content = page.request.get(f"{site}/race").text()
    assert 'property="og:title" content="Race · OptiRS-Web"' in content
    assert "og:image" not in content
