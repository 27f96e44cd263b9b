"""Facts of devices: kind, memory, features, and which devices are the same hardware."""

import json
import os

from click.testing import CliRunner

import optirs_web as ow
from optirs_web.cli.commands import cli
from optirs_web.runtime.backend import AdapterInfo
from optirs_web.runtime.choosing import topology

ROOT = "pci0000:00/0000:00:01.0"
NVIDIA, AMD, NETWORK = "10de:2330", "1002:73bf", "8086:1572"


def card(folder, address, ids, kind="0x030000", **files):
    """A PCI device as Linux lists it in a folder."""
    place = folder / "devices" / ROOT / address
    place.mkdir(parents=True)
    vendor, device = ids.split(":")
    contents = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": kind, **files}
    for name, content in contents.items():
        (place / name).write_text(f"{content}\n")
    (folder / "pci").mkdir(exist_ok=True)
    (folder / "pci" / address).symlink_to(place)


def told(folder, *adapters, avoided=None):
    result = topology.completed(adapters, avoided or {}, str(folder / "pci"))
    return {info.label: info for info in result}


def test_one_card_through_several_interfaces_is_one_adapter(tmp_path):
    card(tmp_path, "0000:01:00.0", NVIDIA, "0x030200")
    card(tmp_path, "0000:02:00.0", NETWORK, "0x020000")
    actual = told(
        tmp_path,
        AdapterInfo("vulkan", 0, "", kind="discrete", adapter=NVIDIA),
        AdapterInfo("gl", 0, "", adapter="10de:0000"),
        AdapterInfo("cuda", 0, "", adapter=NVIDIA, bus="0000:01:00.0", memory=80 << 30),
        AdapterInfo("opencl", 0, "", software=True),
        AdapterInfo("cpu", 0, ""),
    )
    for name in ("vulkan", "gl", "cuda"):
        assert actual[name].adapter == "0000:01:00.0"
        assert actual[name].bus == f"{ROOT}/0000:01:00.0"
        assert actual[name].memory == 80 << 30  # which one of them knows
    assert (actual["opencl"].kind, actual["cpu"].kind, actual["gl"].kind) == ("software", "cpu", "")
    assert actual["opencl"].adapter == actual["cpu"].adapter
    assert {info.host for info in actual.values()} == {os.uname().nodename}


def test_cards_of_the_same_kind_are_not_taken_for_one_another(tmp_path):
    for address in ("0000:01:00.0", "0000:03:00.0"):
        card(tmp_path, address, NVIDIA)
    actual = told(
        tmp_path,
        *(AdapterInfo("vulkan", index, "", adapter=NVIDIA) for index in (0, 1)),
        AdapterInfo("dx12", 0, "", adapter=NVIDIA),
        AdapterInfo("cuda", 0, "", bus="0000:03:00.0"),
    )
    assert len({info.adapter for info in actual.values()}) == 4
    assert [actual[name].bus for name in ("vulkan", "vulkan:1", "dx12")] == ["", "", ""]
    assert actual["cuda"].adapter == "0000:03:00.0"


def test_opengl_belongs_to_no_card_where_a_vendor_has_two_kinds(tmp_path):
    actual = told(
        tmp_path,
        AdapterInfo("vulkan", 0, "", adapter="8086:1"),
        AdapterInfo("vulkan", 1, "", adapter="8086:2"),
        AdapterInfo("gl", 0, "", adapter="8086:0000"),
    )
    assert actual["gl"].adapter == ""


def test_memory_is_what_the_system_tells_or_not_known(tmp_path):
    card(tmp_path, "0000:01:00.0", AMD, mem_info_vram_total=str(16 << 30))
    card(tmp_path, "0000:03:00.0", NVIDIA)
    actual = told(
        tmp_path,
        AdapterInfo("vulkan", 0, "", adapter=AMD),
        AdapterInfo("vulkan", 1, "", adapter=NVIDIA),
        AdapterInfo("metal", 0, "", available=False, reason="not here"),
    )
    assert [info.memory for info in actual.values()] == [16 << 30, None, None]
    assert actual["metal"].host == ""


def test_graphics_cards_that_no_driver_offers_are_told(tmp_path):
    card(tmp_path, "0000:00:02.0", "1234:1111")  # an emulated one
    assert topology.idle_gpus(str(tmp_path / "pci")) == ""
    card(tmp_path, "0000:01:00.0", NVIDIA)
    assert "an NVIDIA GPU at PCI 0000:01:00.0 that no driver offers" in topology.idle_gpus(str(tmp_path / "pci"))
    assert topology.idle_gpus(str(tmp_path / "nothing")) == ""


def test_the_devices_of_this_machine_tell_what_they_are(open_device):
    vulkan = open_device("vulkan")
    actual = {device.name: device for device in ow.devices()}
    cpu = actual["cpu"]
    assert (cpu.kind, cpu.software, cpu.adapter) == ("cpu", False, "processor")
    assert cpu.memory == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert actual["vulkan"].features == vulkan.capabilities.features
    assert actual["vulkan"].kind in ("software", "integrated", "discrete", "")
    if actual["vulkan"].software:
        assert actual["vulkan"].adapter == "processor"
        assert actual["vulkan"].memory == cpu.memory


def test_the_command_prints_the_same_for_people_and_for_programs():
    plain, as_json = (CliRunner().invoke(cli, ["devices", *more]) for more in ([], ["--json"]))
    content = json.loads(as_json.stdout)
    preferred = json.loads(CliRunner().invoke(cli, ["devices", "--json", "--power", "low"]).stdout)
    assert preferred["auto"]["name"] == ow.device("auto", power="low").name
    assert [entry["name"] for entry in content["devices"]] == [device.label for device in ow.devices()]
    assert content["auto"] == {"name": ow.device("auto").name, "why": ow.device("auto").why}
    (cpu,) = (entry for entry in content["devices"] if entry["name"] == "cpu")
    assert (cpu["kind"], cpu["available"], cpu["reason"]) == ("cpu", True, None)
    assert f"{cpu['memory'] / 2**30:.1f} GiB" in plain.stdout
    there, missing = plain.stdout.split("\nunavailable  why\n")
    for entry in content["devices"]:
        part, text = (there, entry["description"]) if entry["available"] else (missing, entry["reason"])
        assert any(line.split()[0] == entry["name"] and text in line for line in part.splitlines() if line)
