"""What `walkserve doctor` looks at: software, plugins, the machine, and what files need."""

from __future__ import annotations

import json
import linecache
import os
import platform
import re
import shutil
import subprocess
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal

import importlib_metadata
from msgspec import Struct
from packaging.requirements import Requirement

from walkserve.descriptions import surface_routes
from walkserve.extensions import load_extensions
from walkserve.plugins import Claim, find_models, load_model
from walkserve.transport.rundir import folders_of_servers, run_root
from walkserve_sdk.errors import DeclarationError, PluginError
from walkserve_sdk.models import API_LEVEL, Model

State = Literal["well", "warning", "broken"]

ENOUGH_SHARED = 256 * 2**20
"""Bytes of shared memory below which a server may run out of it; containers often have 64 MiB."""
TORCH_WITHIN_S = 120

_TORCH = """
import json, torch
print(json.dumps({
    "version": torch.__version__,
    "cuda": torch.version.cuda,
    "threads": torch.get_num_threads(),
    "devices": [
        {"name": (about := torch.cuda.get_device_properties(n)).name, "bytes": about.total_memory}
        for n in range(torch.cuda.device_count())
    ],
}))
"""


class Finding(Struct, frozen=True):
    """One thing that was looked at.

    Args:
        area: Under which heading it stands.
        name: What was looked at.
        state: ``"warning"`` for what works and will not do everywhere, ``"broken"`` for what does not.
        says: The fact, and the cure where one is needed.
        trace: Where a plugin failed: lines of its own files, and what was raised.
    """

    area: str
    name: str
    state: State
    says: str
    trace: tuple[str, ...] = ()


def check_up() -> Iterator[Finding]:
    """Look at everything, one thing after another; a check that fails harms no other."""
    yield from software()
    yield from plugins()
    yield from extensions()
    yield from machine()
    yield from files()


# --- software -----------------------------------------------------------------------------------------


def software() -> Iterator[Finding]:
    """Python, and what walkserve needs: there or missing, each with its version."""
    area = "Software"
    yield Finding(area, "python", "well", f"{platform.python_version()}, {sys.executable}")
    for name in ("walkserve", "walkserve-sdk"):
        yield _distribution(area, name)
    needs = _needs("walkserve")
    for need in needs:
        wrong = _unmet(need)
        if wrong:
            yield Finding(area, need.name, "broken", f"{wrong}; walkserve needs it")
    told = sorted(f"{need.name} {_version(need.name)}" for need in needs if not _unmet(need))
    yield Finding(area, "packages", "well", ", ".join(told))
    yield Finding(area, "API level", "well", f"{API_LEVEL}: plugins written for it can be served")


def _distribution(area: str, name: str) -> Finding:
    found = _version(name)
    if found is not None:
        return Finding(area, name, "well", found)
    return Finding(area, name, "warning", "runs from a folder of sources; it is not installed")


def _version(name: str) -> str | None:
    try:
        return str(importlib_metadata.version(name))
    except importlib_metadata.PackageNotFoundError:
        return None


def _needs(name: str) -> list[Requirement]:
    """What one distribution requires here; that of its extras is for whoever asks for them."""
    try:
        required = importlib_metadata.requires(name) or []
    except importlib_metadata.PackageNotFoundError:
        return []
    needs = [Requirement(line) for line in required]
    return [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]


def _unmet(need: Requirement) -> str:
    """Why a requirement is not met, with the cure; "" if it is."""
    there = _version(need.name)
    cure = f"pip install '{need.name}{need.specifier}'"
    if there is None:
        return f"it is not installed: {cure}"
    if not need.specifier.contains(there, prereleases=True):
        return f"{there} is installed, which is not {need.specifier}: {cure}"
    return ""


# --- plugins ------------------------------------------------------------------------------------------


def plugins() -> Iterator[Finding]:
    """Every claim to a model's name: loaded, each by itself, and what keeps it from being served."""
    claims = find_models().claims
    if not claims:
        yield Finding("Plugins", "none", "warning", "no model is installed: install its plugin with pip")
    for name, each in claims.items():
        yield _plugin(name, each)


def _plugin(name: str, claims: tuple[Claim, ...]) -> Finding:
    had_torch = "torch" in sys.modules
    claim = claims[0]
    where = f"{claim.plugin}, {claim.target}"
    try:
        family = load_model(name)
    except PluginError as error:
        said = str(error).removeprefix(f"{name} ({claim.plugin}): ").removeprefix(f"{name} ({claim.plugin}) ")
        said = said.removeprefix(f"{name}: ")
        says = said if len(claims) > 1 else f"{where}: {said}"
        trace = () if error.__cause__ is None else tuple(_trace(error.__cause__, claim.target))
        return Finding("Plugins", name, "broken", says, trace)
    from walkserve.conductor.placement import place

    try:
        place(name, family, (), on_cpu=True)
    except DeclarationError as error:
        return Finding("Plugins", name, "warning", f"{where}: it loads, but is not served yet: {error}")
    unmet = [f"{need.name}: {wrong}" for need in _needs(claim.distribution) if (wrong := _unmet(need))]
    if unmet:
        return Finding("Plugins", name, "broken", f"{where}: it needs {'; '.join(unmet)}")
    wrong = _wrong_surfaces(claim, family)
    if wrong:
        return Finding("Plugins", name, "warning", f"{where}: {wrong}")
    if "torch" in sys.modules and not had_torch:
        slow = "its declaration imports torch, so every command waits for that; import it in components only"
        return Finding("Plugins", name, "warning", f"{where}: {slow}")
    return Finding("Plugins", name, "well", where)


def _wrong_surfaces(claim: Claim, family: type[Model]) -> str:
    """What is said of its surfaces that is not so, or "": in the descriptor, or without any route."""
    described, there = claim.notes.surfaces, family.surfaces()
    if described and sorted(described) != sorted(there):
        said, are = ", ".join(described), ", ".join(there) or "none"
        return f"its walkserve.json says surfaces {said}, and it has {are}"
    routes = surface_routes(family, load_extensions((claim.distribution,)).surfaces)
    missing = [surface for surface in there if surface not in routes]
    return f"no extension of {claim.distribution} has a route for {', '.join(missing)}" if missing else ""


def extensions() -> Iterator[Finding]:
    """Every extension: loaded, and the routes that it adds, or what keeps it from that."""
    found = load_extensions()
    for each in found.loaded:
        routes = ", ".join(map(str, each.routes)) or "no route"
        yield Finding("Extensions", each.name, "well", f"{each.plugin}, {each.target}: {routes}")
    for each, error in found.broken:
        trace = () if error.__cause__ is None else tuple(_trace(error.__cause__, each.target))
        said = str(error).removeprefix(each.label).lstrip(": ")
        yield Finding("Extensions", each.name, "broken", f"{each.plugin}, {each.target}: {said}", trace)
    for clash in found.clashes:
        yield Finding("Extensions", "routes", "broken", clash)


def _trace(error: BaseException, target: str) -> Iterator[str]:
    """The lines of the plugin's own files that led there, the last of all, and what was raised."""
    package = target.partition(":")[0].strip().partition(".")[0]
    frames = list(_frames(error.__traceback__))
    own = [frame for frame in frames if re.search(rf"[/\\]{re.escape(package)}([/\\]|\.py$)", frame[0])]
    shown = own[-3:]
    if isinstance(error, SyntaxError) and error.filename:
        shown = [*shown, (error.filename, error.lineno or 0, (error.text or "").strip())]
    elif frames and frames[-1] not in shown and not _is_import_machinery(frames[-1][0]):
        shown = [*shown, frames[-1]]
    for file, line, source in shown:
        yield f"{file}, line {line}" + (f": {source}" if source else "")
    yield from (line.rstrip() for line in traceback.format_exception_only(error)[-1].splitlines())


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, int, str]]:
    for frame, line in traceback.walk_tb(trace):
        file = frame.f_code.co_filename
        yield file, line, linecache.getline(file, line).strip()


def _is_import_machinery(file: str) -> bool:
    return file.startswith("<frozen importlib") or "importlib" in Path(file).parts


# --- the machine --------------------------------------------------------------------------------------


def machine() -> Iterator[Finding]:
    """Processors, memory, devices, and the room that tensors have between processes."""
    area = "Machine"
    cores = len(os.sched_getaffinity(0))
    threads = os.environ.get("OMP_NUM_THREADS")
    told = f"; OMP_NUM_THREADS is {threads}" if threads else ""
    yield Finding(area, "processors", "well", f"{cores} of {os.cpu_count()} may be used{told}")
    memory = dict(re.findall(r"(\w+):\s+(\d+) kB", Path("/proc/meminfo").read_text()))
    total, available = (int(memory[name]) * 1024 for name in ("MemTotal", "MemAvailable"))
    yield Finding(area, "memory", "well", f"{_size(available)} of {_size(total)} are free")
    yield from torch_and_devices()
    yield from shared_memory()


def torch_and_devices() -> Iterator[Finding]:
    """Import torch in a process of its own, so that one that crashes is reported too."""
    area = "Machine"
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TORCH], capture_output=True, text=True, timeout=TORCH_WITHIN_S
        )
    except subprocess.TimeoutExpired:
        yield Finding(area, "torch", "broken", f"importing it takes more than {TORCH_WITHIN_S} s")
        return
    if done.returncode:
        lines = tuple(done.stderr.strip().splitlines()[-3:])
        why = lines[-1] if lines else f"its process ended with {done.returncode}"
        yield Finding(area, "torch", "broken", f"it cannot be imported: {why}; reinstall torch", lines)
        return
    told = json.loads(done.stdout.splitlines()[-1])
    built = f"built for CUDA {told['cuda']}" if told["cuda"] else "built for CPUs"
    yield Finding(area, "torch", "well", f"{told['version']}, {built}, {_count(told['threads'], 'thread')}")
    for number, device in enumerate(told["devices"]):
        yield Finding(area, f"cuda:{number}", "well", f"{device['name']}, {_size(device['bytes'])}")
    if not told["devices"]:
        state: State = "warning" if told["cuda"] else "well"
        cure = ", though torch could use one: see nvidia-smi" if told["cuda"] else ""
        yield Finding(area, "devices", state, f"no GPU{cure}; models run on the CPU")


def shared_memory(root: Path | None = None) -> Iterator[Finding]:
    """Room for tensors between processes, and what dead servers left there."""
    area = "Machine"
    folder = root if root is not None else run_root()
    room = shutil.disk_usage(folder)
    says = f"{folder} has room for {_size(room.free)} of {_size(room.total)}"
    if room.free < ENOUGH_SHARED:
        cure = "; in a container, start it with more: docker run --shm-size 1g"
        yield Finding(area, "shared memory", "warning", says + cure)
    else:
        yield Finding(area, "shared memory", "well", says)
    servers = folders_of_servers(root)
    dead = [folder for folder, lives in servers.items() if not lives]
    if dead:
        size = sum(file.lstat().st_size for folder in dead for file in folder.rglob("*"))
        says = f"{_count(len(dead), 'dead server')} left {_size(size)} in {', '.join(map(str, dead))}"
        yield Finding(area, "leftovers", "warning", f"{says}; the next `walkserve serve` removes it")
    alive = len(servers) - len(dead)
    yield Finding(
        area, "servers", "well", f"{_count(alive, 'server')} of this user run{'s' * (alive == 1)} here"
    )


# --- files --------------------------------------------------------------------------------------------


def files() -> Iterator[Finding]:
    """The hub's cache, and the formats in which sound can be written."""
    yield hub_cache()
    yield sound_formats()


def hub_cache() -> Finding:
    """Where checkpoints are downloaded to."""
    from huggingface_hub.constants import HF_HUB_CACHE, HF_HUB_OFFLINE

    folder = Path(HF_HUB_CACHE)
    nearest = next(each for each in (folder, *folder.parents) if each.is_dir())
    if not os.access(nearest, os.W_OK):
        cure = "set HF_HOME to a folder that may be"
        return Finding("Files", "hub cache", "warning", f"{folder} may not be written; {cure}")
    there = sum(1 for each in folder.glob("models--*")) if folder.is_dir() else 0
    offline = "; offline, by HF_HUB_OFFLINE" if HF_HUB_OFFLINE else ""
    free = _size(shutil.disk_usage(nearest).free)
    says = f"{folder} has {_count(there, 'repository')}, with room for {free}{offline}"
    return Finding("Files", "hub cache", "well", says)


FORMATS = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "opus": ("OGG", "OPUS"),
}
"""What speech is written as -> what libsndfile calls it."""


def sound_formats() -> Finding:
    """What libsndfile can write here."""
    try:
        import soundfile
    except (ImportError, OSError) as error:  # the latter where the C library is not there
        cure = "pip install --force-reinstall soundfile, or install libsndfile1"
        return Finding("Files", "sound", "broken", f"soundfile cannot be imported: {error}; {cure}")
    can = [name for name, (kind, coding) in FORMATS.items() if soundfile.check_format(kind, coding)]
    cannot = [name for name in FORMATS if name not in can]
    says = f"libsndfile {soundfile.__libsndfile_version__} writes {', '.join(can)}"
    if cannot:
        lacks = f", and not {', '.join(cannot)}: take a newer soundfile"
        return Finding("Files", "sound", "warning", says + lacks)
    return Finding("Files", "sound", "well", says)


# --- words --------------------------------------------------------------------------------------------


def _size(size_bytes: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "bytes" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


def _count(number: int, what: str) -> str:
    several = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{number or 'no'} {what if number == 1 else several}"


def is_bad(findings: Iterable[Finding], *, strict: bool) -> bool:
    """Whether something is broken; with ``strict``, a warning counts as well."""
    bad = {"broken", "warning"} if strict else {"broken"}
    return any(finding.state in bad for finding in findings)
