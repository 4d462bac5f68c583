"""Names of models, and where their files are: in the plugin, in a folder, on the hub."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import huggingface_hub
import pytest
from huggingface_hub import errors

from walkserve.checkpoints import HubAccess, resolve_checkpoint
from walkserve.errors import SettingError
from walkserve.model_names import ModelName, parse_model_name
from walkserve_sdk import Component, Hub, LoadError, Model, Node, Output, Text, WalkGraph, track

httpx = pytest.importorskip(errors.HfHubHTTPError.__mro__[1].__module__.partition(".")[0])


class Hummer(Model):
    checkpoints: ClassVar = {
        "main": Hub("sound/hum-1b"),
        "codec": Hub("sound/codec", files=("config.json", "weights.bin"), revision="v2"),
    }
    variants: ClassVar = {"toy": "toy", "gone": "gone", "large": "sound/hum-7b@v3"}
    voice = Component("nowhere:Voice")
    words = Output(Text())
    speak = WalkGraph(Node(voice, "say", takes="text", gives="out", to=words))

    @track
    def speaking(self, request: Any, prepared: Any) -> Any:
        yield self.speak(text=request.one("text"))


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plugin's package, on disk."""
    module = ModuleType("hummer_plugin")
    module.__file__ = str(tmp_path / "hummer_plugin" / "__init__.py")
    monkeypatch.setitem(sys.modules, "hummer_plugin", module)
    monkeypatch.setattr(Hummer, "__module__", "hummer_plugin")
    return Path(module.__file__).parent


def fill(folder: Path, *files: str) -> Path:
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("{}")
    return folder


FILES = ("config.json", "model.safetensors", "codec/config.json", "codec/weights.bin")


class FakeHub:
    """Takes the place of the download: remembers what it was asked, and gives folders or an error."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[tuple[str, str | None, str | None, bool, list[str]]] = []
        self.error: Exception | None = None

    def __call__(
        self,
        repo_id: str,
        *,
        revision: str | None,
        token: str | None,
        local_files_only: bool,
        allow_patterns: list[str],
    ) -> str:
        self.asked.append((repo_id, revision, token, local_files_only, allow_patterns))
        if self.error is not None:
            raise self.error
        return str(fill(self.root / repo_id, "config.json", "model.safetensors", "weights.bin"))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    fake = FakeHub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake)
    yield fake


class Unhummed(Hummer):
    """No hub has it, and it reads folders of several layouts."""

    checkpoints: ClassVar = {
        "main": Hub("", files=("*.pt",), in_folder=(), elsewhere="download https://hum.example/hum.pt (2 GB)")
    }


# --- names ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "served"),
    [
        ("hum", ModelName("hum"), "hum"),
        ("hum:toy", ModelName("hum", "toy"), "hum:toy"),
        ("hum=/a:b=c", ModelName("hum", "", "/a:b=c"), "hum"),
        ("hum:mine=sound/hum@v1", ModelName("hum", "mine", "sound/hum@v1"), "hum:mine"),
        ("qwen3-omni", ModelName("qwen3-omni"), "qwen3-omni"),
    ],
)
def test_a_name_is_family_variant_and_checkpoint(text: str, name: ModelName, served: str) -> None:
    assert parse_model_name(text) == name
    assert name.served == served


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' names no model; write NAME[:VARIANT][=CHECKPOINT]"),
        (":toy", "':toy' names no model"),
        ("=x", "'=x' names no model"),
        ("hum:", "no variant follows the ':'"),
        ("hum:=x", "no variant follows the ':'"),
        ("hum=", "no checkpoint follows the '='; give a folder or a hub id"),
        ("hu m", "'hu m' is no model's name"),
        ("hum:a/b", "'a/b' is no variant's name"),
        ("sound/hum", "a checkpoint comes after the family's name: FAMILY=sound/hum"),
    ],
)
def test_what_is_no_name_is_refused(text: str, message: str) -> None:
    with pytest.raises(SettingError) as error:
        parse_model_name(text)
    assert message in str(error.value)


# --- folders --------------------------------------------------------------------------------------------


def test_a_variant_is_a_folder_of_the_plugins_package(package: Path) -> None:
    toy = fill(package / "toy", *FILES)
    found = resolve_checkpoint(parse_model_name("hum:toy"), Hummer)
    assert found.folders == {"main": toy, "codec": toy / "codec"}
    assert found.label == "hum:toy"


def test_a_variant_that_the_package_lacks_is_a_broken_plugin(package: Path) -> None:
    with pytest.raises(LoadError, match="hum:gone: its plugin should hold it in .*gone, which is no folder"):
        resolve_checkpoint(parse_model_name("hum:gone"), Hummer)


def test_an_unknown_variant_is_answered_with_a_near_one() -> None:
    with pytest.raises(SettingError) as error:
        resolve_checkpoint(parse_model_name("hum:toi"), Hummer)
    assert str(error.value) == (
        "hum has no variant 'toi'; did you mean 'toy'?; to serve files of your own under this name, "
        "write hum:toi=CHECKPOINT"
    )


def test_a_folder_has_the_other_parts_as_sub_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = fill(tmp_path / "mine", *FILES)
    monkeypatch.chdir(tmp_path)
    found = resolve_checkpoint(parse_model_name("hum:mine=mine"), Hummer)
    assert found.folders == {"main": mine, "codec": mine / "codec"}
    assert found.label == "mine"


def test_a_folder_that_lacks_files_is_answered_with_all_it_must_hold(tmp_path: Path) -> None:
    mine = fill(tmp_path / "mine", "config.json", "codec/config.json")
    with pytest.raises(LoadError) as error:
        resolve_checkpoint(parse_model_name(f"hum={mine}"), Hummer)
    assert str(error.value) == (
        f"hum: the folder {mine} must hold *.json, *.safetensors, codec/config.json, codec/weights.bin; "
        "it lacks *.safetensors, codec/weights.bin"
    )


def test_a_folder_that_holds_nothing_of_it_is_answered_with_the_list_once(tmp_path: Path) -> None:
    with pytest.raises(LoadError) as error:
        resolve_checkpoint(parse_model_name(f"hum={tmp_path}"), Hummer)
    assert str(error.value) == (
        f"hum: the folder {tmp_path} is no checkpoint of this family: it holds none of "
        "*.json, *.safetensors, codec/config.json, codec/weights.bin"
    )


@pytest.mark.parametrize("checkpoint", ["./nope", "/nope/x", "~/nope", "nope", "a/b/c", "a/b@", "a/b@c@d"])
def test_what_is_neither_folder_nor_hub_id_is_refused(checkpoint: str, hub: FakeHub) -> None:
    with pytest.raises(LoadError, match="there is no such folder, and a hub id has the form owner/name"):
        resolve_checkpoint(parse_model_name(f"hum={checkpoint}"), Hummer)
    assert hub.asked == []


def test_a_file_is_no_checkpoint(tmp_path: Path) -> None:
    fill(tmp_path, "model.safetensors")
    with pytest.raises(LoadError, match="this is a file; give the folder that holds it"):
        resolve_checkpoint(parse_model_name(f"hum={tmp_path}/model.safetensors"), Hummer)


def test_a_folder_has_no_revision(package: Path) -> None:
    fill(package / "toy", *FILES)
    with pytest.raises(SettingError, match="hum:toy: a folder has no revisions"):
        resolve_checkpoint(parse_model_name("hum:toy"), Hummer, revision="v1")


# --- the hub --------------------------------------------------------------------------------------------

MAIN = ["*.json", "*.safetensors"]
CODEC = ("sound/codec", "v2", None, False, ["config.json", "weights.bin"])


def test_without_a_checkpoint_the_published_one_is_fetched(hub: FakeHub) -> None:
    found = resolve_checkpoint(parse_model_name("hum"), Hummer)
    assert hub.asked == [("sound/hum-1b", None, None, False, MAIN), CODEC]
    assert found.folders == {"main": hub.root / "sound/hum-1b", "codec": hub.root / "sound/codec"}
    assert found.label == "sound/hum-1b"


@pytest.mark.parametrize("text", ["hum:large", "hum=sound/hum-7b@v3", "hum:mine=sound/hum-7b@v3"])
def test_another_main_part_goes_with_the_familys_other_parts(text: str, hub: FakeHub) -> None:
    resolve_checkpoint(parse_model_name(text), Hummer)
    assert hub.asked == [("sound/hum-7b", "v3", None, False, MAIN), CODEC]


def test_a_revision_is_that_of_the_main_part(hub: FakeHub) -> None:
    found = resolve_checkpoint(parse_model_name("hum"), Hummer, revision="v9")
    assert hub.asked == [("sound/hum-1b", "v9", None, False, MAIN), CODEC]
    assert found.label == "sound/hum-1b@v9"


def test_two_revisions_contradict_each_other(hub: FakeHub) -> None:
    with pytest.raises(SettingError, match="two revisions are named, 'v3' and 'v9'; leave one out"):
        resolve_checkpoint(parse_model_name("hum=sound/hum-7b@v3"), Hummer, revision="v9")


def test_token_and_offline_reach_the_download(hub: FakeHub) -> None:
    resolve_checkpoint(parse_model_name("hum"), Hummer, access=HubAccess(offline=True, token="secret"))
    assert [asked[2:4] for asked in hub.asked] == [("secret", True), ("secret", True)]


def answer(status: int) -> Any:
    return httpx.Response(status, request=httpx.Request("GET", "https://huggingface.co"))


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            errors.GatedRepoError("403", response=answer(403)),
            "hum: sound/hum-1b: the repository is gated; accept its licence on "
            "https://huggingface.co/sound/hum-1b, then give a token by HF_TOKEN or --hub-token-file",
        ),
        (
            errors.RepositoryNotFoundError("404", response=answer(404)),
            "hum: sound/hum-1b: the hub has no such repository, or it is private; check the name, or give",
        ),
        (
            errors.RevisionNotFoundError("404", response=answer(404)),
            "the repository has no revision 'main'; https://huggingface.co/sound/hum-1b shows what it has",
        ),
        (errors.DisabledRepoError("403", response=answer(403)), "has disabled the repository"),
        (errors.HfHubHTTPError("401", response=answer(401)), "the hub refused access (401); give a token"),
        (errors.HfHubHTTPError("503", response=answer(503)), "the hub answered 503; try again later"),
        (
            errors.HFValidationError("Repo id is bad\nmore"),
            "this is no hub id: HFValidationError: Repo id is bad",
        ),
        (
            caused(errors.LocalEntryNotFoundError("no"), errors.OfflineModeIsEnabled("HF_HUB_OFFLINE")),
            "offline, so only the local cache was searched, and it is not there; "
            "run once without --offline and HF_HUB_OFFLINE",
        ),
        (errors.OfflineModeIsEnabled("HF_HUB_OFFLINE"), "offline, so only the local cache was searched"),
        (
            caused(errors.LocalEntryNotFoundError("no"), httpx.ConnectError("no route")),
            "the download failed (ConnectError: no route); check the connection and proxies, "
            "try again, or give a folder that holds it: hum=FOLDER",
        ),
        (httpx.ReadTimeout("slow"), "the download failed (ReadTimeout: slow)"),
        (httpx.ProxyError("bad"), "the download failed (ProxyError: bad)"),
        (PermissionError(13, "denied"), "the local cache cannot be written: PermissionError"),
        (OSError(28, "full"), "no space is left for it: OSError: [Errno 28] full; HF_HOME says where"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_why_the_hub_gave_nothing_is_said_with_the_cure(hub: FakeHub, error: Exception, message: str) -> None:
    hub.error = error
    with pytest.raises(LoadError) as raised:
        resolve_checkpoint(parse_model_name("hum"), Hummer)
    assert message in str(raised.value)
    assert raised.value.__cause__ is error
    assert "\n" not in str(raised.value)


def test_a_part_that_is_not_there_is_named(hub: FakeHub, tmp_path: Path) -> None:
    only_codec = type("Codec", (Hummer,), {"checkpoints": {"codec": Hub("sound/codec", files=("x.bin",))}})
    with pytest.raises(
        LoadError, match=r"hum: sound/codec .its part 'codec'.: .* holds no x.bin; check that it"
    ):
        resolve_checkpoint(parse_model_name("hum"), only_codec)


# --- the true download, offline -------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's local cache, with both repositories as it stores them."""
    root = tmp_path / "cache"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(root))
    for repo, ref, files in (
        ("sound/hum-1b", "main", ("config.json", "model.safetensors")),
        ("sound/codec", "v2", ("config.json", "weights.bin")),
    ):
        folder = root / f"models--{repo.replace('/', '--')}"
        fill(folder / "snapshots" / ("a" * 40), *files)
        (folder / "refs").mkdir()
        (folder / "refs" / ref).write_text("a" * 40)
    return root


OFFLINE = HubAccess(offline=True)


def test_offline_the_local_cache_is_enough(cache: Path) -> None:
    found = resolve_checkpoint(parse_model_name("hum"), Hummer, access=OFFLINE)
    assert found.file("model.safetensors").read_text() == "{}"
    assert found.file("weights.bin", "codec").is_relative_to(cache)


def test_offline_what_is_not_cached_is_a_load_error_with_the_cure(cache: Path) -> None:
    with pytest.raises(LoadError) as error:
        resolve_checkpoint(parse_model_name("hum=sound/other"), Hummer, access=OFFLINE)
    assert str(error.value) == (
        "hum: sound/other: offline, so only the local cache was searched, and it is not there; run once "
        "without --offline and HF_HUB_OFFLINE, where the hub can be reached, or give a folder that holds it: "
        "hum=FOLDER"
    )


def test_offline_what_is_cached_in_part_is_a_load_error(cache: Path) -> None:
    (cache / "models--sound--hum-1b" / "snapshots" / ("a" * 40) / "model.safetensors").unlink()
    with pytest.raises(LoadError, match="holds no .*safetensors; run once without --offline"):
        resolve_checkpoint(parse_model_name("hum"), Hummer, access=OFFLINE)


def test_a_checkpoint_that_no_hub_has_is_asked_for_with_where_to_get_it() -> None:
    for revision in (None, "v2"):
        with pytest.raises(LoadError) as error:
            resolve_checkpoint(ModelName("hum"), Unhummed, revision=revision)
        assert str(error.value) == (
            "hum: no hub has a checkpoint of hum; download https://hum.example/hum.pt (2 GB), "
            "and serve the folder that holds it: hum=FOLDER"
        )


def test_a_family_that_reads_several_layouts_is_given_any_folder(tmp_path: Path) -> None:
    found = resolve_checkpoint(ModelName("hum", "", str(tmp_path)), Unhummed)
    assert found.folders == {"main": tmp_path}


def test_somebodys_own_repository_is_downloaded_though_none_is_published(hub: FakeHub) -> None:
    with pytest.raises(LoadError, match=r"holds no \*.pt"):
        resolve_checkpoint(ModelName("hum", "", "me/hum"), Unhummed)
    assert hub.asked == [("me/hum", None, None, False, ["*.pt"])]
