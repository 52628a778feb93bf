"""Profiles: every number sourced, critical intensities as published, users' files, impossible values refused."""

import copy

import pytest
import yaml

from autoshard.costmodels import Profile, ProfileError, list_profiles, load_profile, place_mesh
from autoshard.costmodels.hardware_tables import critical_intensities, hardware_overview, hardware_rows
from autoshard.costmodels.load import list_calibrated
from autoshard.costmodels.profile import SwitchLevel

NAMES = {
    "tpu_v3", "tpu_v4", "tpu_v5e", "tpu_v5p", "tpu_v6e", "tpu_v7x", "v100", "a100_40", "a100_80", "h100", "h200",
    "b200", "gb200_nvl72", "mi300x", "cpu_sim",
}  # fmt: skip


def test_the_profiles_are_there() -> None:
    assert set(list_profiles()) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_number_has_unit_source_and_date_and_link_rates_are_one_way(name) -> None:
    rows = hardware_rows(load_profile(name))
    assert len(rows) >= 6
    for row in rows:
        assert row["unit"]
        assert row["source"]
        assert row["date"]
        if row["unit"] == "bytes/s" and not row["what"].startswith("memory"):
            assert row["direction"] == ("both-ways" if "vendor" in row["what"] else "one-way")


# Peak bfloat16 (fp16 on V100) over bandwidth; memory and one ring or the switch from public figures of each machine:
# How To Scale Your Model chapters 2 and 12 (v5p 2550, v5e 2189, H100 2198 and 2472, B200 2500 and 5625).
PUBLISHED = {
    "tpu_v3": {"memory": 136.7, "ici ring": 878.6, "ici line": 1757.0},
    "tpu_v4": {"memory": 229.2, "ici ring": 3056.0, "ici line": 6111.0, "dcn": 44000.0},
    "tpu_v5e": {"memory": 243.2, "ici ring": 2189.0, "ici line": 4378.0, "dcn": 63040.0},
    "tpu_v5p": {"memory": 166.0, "ici ring": 2550.0, "ici line": 5100.0, "dcn": 73440.0},
    "tpu_v6e": {"memory": 560.4, "ici ring": 5100.0, "ici line": 10200.0, "dcn": 73440.0},
    "tpu_v7x": {"memory": 312.6, "ici ring": 12820.0, "ici line": 25630.0, "dcn": 184600.0},
    "v100": {"memory": 138.9, "nvlink": 833.3, "scale_out, whole domain of 8": 2500.0},
    "a100_40": {"memory": 200.6, "nvlink": 1040.0, "scale_out, whole domain of 8": 1560.0},
    "a100_80": {"memory": 153.0, "nvlink": 1040.0, "scale_out, whole domain of 8": 1560.0},
    "h100": {"memory": 295.2, "nvlink": 2198.0, "scale_out, whole domain of 8": 2472.0},
    "h200": {"memory": 206.0, "nvlink": 2198.0, "scale_out, whole domain of 8": 2472.0},
    "b200": {"memory": 281.2, "nvlink": 2500.0, "scale_out, whole domain of 8": 5625.0},
    "gb200_nvl72": {"memory": 312.5, "nvlink": 2778.0, "scale_out, whole domain of 72": 694.4},
    "mi300x": {"memory": 246.7, "xgmi": 2918.0, "scale_out, whole domain of 8": 3268.0},
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_critical_intensities(name) -> None:
    found = critical_intensities(load_profile(name))
    for key, value in PUBLISHED[name].items():
        assert found[key] == pytest.approx(value, rel=1e-3), key


def test_a_profile_survives_its_plain_data() -> None:
    for name in list_profiles():
        profile = load_profile(name)
        assert Profile.from_dict(profile.to_dict()) == profile
    assert {row["name"] for row in hardware_overview()} == {*NAMES, *list_calibrated()}


def test_a_name_or_a_file_that_is_not_there() -> None:
    with pytest.raises(ProfileError, match="no hardware profile named 'tpu_v9'; there are a100_40"):
        load_profile("tpu_v9")
    with pytest.raises(ProfileError, match="cannot read hardware profile"):
        load_profile("/nowhere/mine.yaml")


def test_a_users_file_overrides_a_profile_and_adds_a_level(tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        """
base: h100
name: my_cluster
sources: {mine: {title: our own measurement, date: '2026-11'}}
memory: {bytes: {value: 79.0e+9, unit: bytes, source: mine}}
levels:
  - name: scale_out
    size: 32
    egress: {value: 4.0e+10, unit: bytes/s, direction: one-way, source: mine}
  - name: spine
    kind: switch
    egress: {value: 5.0e+9, unit: bytes/s, direction: one-way, source: mine, note: oversubscribed 1 to 8}
    latency: {value: 3.0e-05, unit: s, source: mine}
    crosses_inner_link: true
"""
    )
    profile = load_profile(path)
    assert profile.name == "my_cluster"
    assert profile.memory.bytes.value == 79e9
    assert profile.memory.bandwidth == load_profile("h100").memory.bandwidth
    assert [level.name for level in profile.levels] == ["nvlink", "scale_out", "spine"]
    machine = place_mesh(profile, {"data": 64, "tensor": 8})  # 32 nodes to a leaf, 2 leaves
    time = machine.collective("all_gather", 1e9, machine.whole("data"))
    # what goes over the spine crosses the nodes' links too: 63/64 of V on them, half of V/32 on the spine
    assert time.bytes_sent_per_device["scale_out"] == pytest.approx(1e9 * 63 / 64)
    assert time.bytes_sent_per_device["spine"] == pytest.approx(1e9 / 2 / 32)
    # V / W of the scale_out: of all 64 nodes, not of the 32 under one leaf switch
    assert time.large_group_s == pytest.approx(1e9 / 4e10)


def test_a_file_that_builds_on_itself_is_refused(tmp_path) -> None:
    path = tmp_path / "loop.yaml"
    path.write_text("base: loop.yaml\n")
    with pytest.raises(ProfileError, match="builds on itself"):
        load_profile(path)


def changed(path: str, value) -> dict:
    data = copy.deepcopy(load_profile("h100").to_dict())
    *parents, last = path.split(".")
    at = data
    for key in parents:
        at = at[int(key)] if isinstance(at, list) else at[key]
    at[int(last) if isinstance(at, list) else last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("levels.0.egress.value", -4.5e11, "possible is"),
        ("levels.0.egress.value", 450, "give bytes/s, not GB/s"),
        ("levels.0.egress.value", 9e11, "is not half of vendor_both_ways"),
        ("levels.0.egress.direction", "both-ways", "halve a both-ways figure"),
        ("levels.0.egress.unit", "FLOP/s", "must be in bytes/s"),
        ("levels.0.latency.value", 10, "give seconds"),
        ("levels.0.egress.value", float("nan"), "finite"),
        ("levels.1.egress.value", 9e12, "more than the memory's"),
        ("peak_flops.bf16.value", 989, "not TFLOP/s"),
        ("peak_flops.bf99", {"value": 1e12, "unit": "FLOP/s", "source": "nv_h100"}, "unknown element type 'bf99'"),
        ("memory.bytes.value", 80, "give bytes, not GB"),
        ("memory.bytes.source", "hearsay", "sources does not list"),
        ("memory.colour", "blue", "unknown key; possible are bytes, bandwidth, usable, host_link, on_chip"),
        ("memory.bandwith", 1, "unknown key; did you mean bandwidth"),
        ("levels.0.egres", 1, "unknown key; did you mean egress"),
        ("overlap.all_gather", 1.5, "less than or equal to 1"),
        ("levels.0.name", "scale_out", "two levels share a name"),
        ("levels.0.size", None, "no level can lie outside"),
        ("levels.1.kind", "full_mesh", "levels.1"),
        ("sources.nv_h100.date", "last year", "pattern"),
    ],
)
def test_impossible_values_are_refused(path, value, message) -> None:
    with pytest.raises(ProfileError, match=message):
        Profile.from_dict(changed(path, value))


def test_a_torus_whose_link_rate_has_the_wrong_direction_is_refused() -> None:
    data = load_profile("tpu_v5e").to_dict()
    data["levels"][0]["link"]["value"] = 9e10  # both ways, entered as one way
    with pytest.raises(ProfileError, match="one of them has the wrong direction"):
        Profile.from_dict(data)


def test_profiles_are_plain_yaml_with_no_key_twice() -> None:
    from importlib.resources import files

    for name in list_profiles():
        text = (files("autoshard.costmodels") / "profiles" / f"{name}.yaml").read_text()
        keys = [line.split(":")[0] for line in text.splitlines() if line and not line[0].isspace()]
        assert len(keys) == len(set(keys))
        assert yaml.safe_load(text)["name"] == name


def test_a_name_may_be_written_in_its_usual_ways() -> None:
    for name in ("TPU v5e", "tpu-v5e", "v5e", "TPU_V5E"):
        assert load_profile(name).name == "tpu_v5e"
    assert load_profile("H100").name == "h100"
    with pytest.raises(ProfileError, match=r"no hardware profile named 'h101'; .*did you mean h100\?"):
        load_profile("h101")


def test_a_users_memory_leaves_out_what_the_base_knew_of_its_own(tmp_path) -> None:
    path = tmp_path / "half.yaml"
    path.write_text(
        "{base: tpu_v5e, name: half, sources: {me: {title: mine, date: '2026'}}, "
        "memory: {bytes: {value: 8.0e9, unit: bytes, source: me}}}"
    )
    memory = load_profile(path).memory
    assert (memory.bytes.value, memory.usable, memory.bandwidth.value) == (8e9, None, 8.1e11)


def test_a_user_may_change_links_with_or_without_a_vendors_figure(tmp_path) -> None:
    path = tmp_path / "h800.yaml"
    link = "egress: {value: 2.0e11, unit: bytes/s, direction: one-way, source: me}"
    head = "base: h100\nname: h800\nsources: {me: {title: mine, date: '2026'}}\nlevels:\n  - name: nvlink\n"
    path.write_text(f"{head}    {link}\n")
    with pytest.raises(ProfileError, match="needs its own vendor_both_ways, or null"):
        load_profile(path)
    path.write_text(f"{head}    {link}\n    vendor_both_ways: null\n")
    level = load_profile(path).levels[0]
    assert isinstance(level, SwitchLevel) and level.egress.value == 2e11
