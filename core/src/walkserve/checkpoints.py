"""Where a model's files are on this machine: in its plugin, in a folder, or fetched from the hub."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from walkserve.errors import SettingError
from walkserve.model_names import ModelName
from walkserve_sdk.checkpoints import Checkpoint, Hub
from walkserve_sdk.errors import LoadError, did_you_mean
from walkserve_sdk.models import Model

MAIN = "main"
_HUB_ID = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*)(?:@(?P<revision>[^@\s]+))?")


@dataclass(frozen=True)
class HubAccess:
    """How the hub may be used.

    Args:
        offline: Take only what is in the local cache.
        token: For gated and private repositories; None leaves it to what huggingface_hub finds.
    """

    offline: bool = False
    token: str | None = None


def resolve_checkpoint(
    name: ModelName, family: type[Model], *, revision: str | None = None, access: HubAccess | None = None
) -> Checkpoint:
    """Find every part of a model's checkpoint, downloading what comes from the hub.

    Args:
        revision: Of the main part, where that comes from the hub.

    Raises:
        SettingError: No such variant, or a revision of what has none.
        LoadError: A folder lacks something, or the hub does not give it; the message has the cure.
    """
    source = _source(name, family)
    if isinstance(source, Path):
        if revision is not None:
            raise SettingError(
                f"{name.served}: a folder has no revisions; leave out the revision {revision!r}"
            )
        return Checkpoint(_folders(name, family, source), name.checkpoint or name.served)
    parts = dict(family.checkpoints)
    if source is not None:
        parts[MAIN] = source
    if revision is not None:
        parts[MAIN] = _at_revision(name, parts.get(MAIN), source, revision)
    if MAIN in parts and not parts[MAIN].repo:
        raise LoadError(
            f"{name.served}: no hub has a checkpoint of {name.family}; {parts[MAIN].elsewhere}, "
            f"and serve the folder that holds it: {name.served}=FOLDER"
        )
    access = access or HubAccess()
    folders = {part: _download(name, part, hub, access) for part, hub in parts.items()}
    is_own = MAIN not in parts or (name.variant and not name.checkpoint)
    return Checkpoint(folders, name.served if is_own else _spelt(parts[MAIN]))


def _source(name: ModelName, family: type[Model]) -> Path | Hub | None:
    """The main part: a folder, a repository, or None for the family's published one."""
    if name.checkpoint:
        folder = Path(os.path.expanduser(name.checkpoint))
        if folder.is_dir():
            return folder.resolve()
        if folder.exists():
            raise LoadError(f"{name.served}={name.checkpoint}: this is a file; give the folder that holds it")
        hub = None if name.checkpoint.startswith((".", "/", "~")) else _hub(name.checkpoint, family)
        if hub is None:
            raise LoadError(
                f"{name.served}={name.checkpoint}: there is no such folder, "
                "and a hub id has the form owner/name[@revision]"
            )
        return hub
    if not name.variant:
        return None
    if name.variant not in family.variants:
        raise SettingError(
            f"{name.family} has no variant {name.variant!r}{did_you_mean(name.variant, family.variants)}"
            f"; to serve files of your own under this name, write {name.served}=CHECKPOINT"
        )
    where = family.variants[name.variant]
    package = sys.modules[family.__module__].__file__ or ""
    folder = Path(package).parent / where
    if package and folder.is_dir():
        return folder
    hub = _hub(where, family)
    if hub is None:
        raise LoadError(
            f"{name.served}: its plugin should hold it in {folder}, which is no folder; reinstall the plugin"
        )
    return hub


# --- folders ------------------------------------------------------------------------------------------


def _folders(name: ModelName, family: type[Model], folder: Path) -> dict[str, Path]:
    parts: Mapping[str, Hub] = family.checkpoints or {MAIN: Hub("", files=())}
    below = {part: "" if part == MAIN else f"{part}/" for part in parts}
    needed = [
        below[part] + pattern
        for part, hub in parts.items()
        for pattern in (hub.files if hub.in_folder is None else hub.in_folder)
    ]
    missing = _unmatched(folder, needed)
    if missing and missing == needed:
        raise LoadError(
            f"{name.served}: the folder {folder} is no checkpoint of this family: "
            f"it holds none of {', '.join(needed)}"
        )
    if missing:
        raise LoadError(
            f"{name.served}: the folder {folder} must hold {', '.join(needed)}; it lacks {', '.join(missing)}"
        )
    return {part: folder / below[part] for part in parts}


def _unmatched(folder: Path, patterns: Iterable[str]) -> list[str]:
    """The patterns of files for which a folder holds nothing."""
    return [pattern for pattern in patterns if not any(folder.glob(pattern))]


# --- the hub ------------------------------------------------------------------------------------------


def _hub(text: str, family: type[Model]) -> Hub | None:
    """A hub id as a repository with the main part's files, or None if it is none."""
    match = _HUB_ID.fullmatch(text)
    if match is None:
        return None
    published = family.checkpoints.get(MAIN, Hub(""))
    return replace(published, repo=match["repo"], revision=match["revision"])


def _at_revision(name: ModelName, hub: Hub | None, source: Hub | None, revision: str) -> Hub:
    if hub is None:
        raise SettingError(f"{name.served} has no published checkpoint, so no revision {revision!r} of one")
    if source is not None and hub.revision not in (None, revision):
        raise SettingError(
            f"{name.served}: two revisions are named, {hub.revision!r} and {revision!r}; leave one out"
        )
    return replace(hub, revision=revision)


def _spelt(hub: Hub) -> str:
    return f"{hub.repo}@{hub.revision}" if hub.revision else hub.repo


def _download(name: ModelName, part: str, hub: Hub, access: HubAccess) -> Path:
    """The folder of one repository, from the cache where it is there; its progress goes to stderr."""
    from huggingface_hub import snapshot_download  # 0.3 s, and not everybody needs it

    label = f"{name.served}: {_spelt(hub)}" + ("" if part == MAIN else f" (its part {part!r})")
    try:
        folder = Path(
            snapshot_download(
                hub.repo,
                revision=hub.revision,
                token=access.token,
                local_files_only=access.offline,
                allow_patterns=list(hub.files),
            )
        )
    except Exception as error:  # its own, the HTTP library's, and the file system's
        raise LoadError(f"{label}: {_why(error, name, hub, access)}") from error
    missing = _unmatched(folder, hub.files)
    if missing:
        cure = _OFFLINE_CURE if access.offline else "check that it is a checkpoint of this family"
        raise LoadError(f"{label}: {folder} holds no {', '.join(missing)}; {cure}")
    return folder


_TOKEN_CURE = "give a token by HF_TOKEN or --hub-token-file"
_OFFLINE_CURE = "run once without --offline and HF_HUB_OFFLINE, where the hub can be reached"


def _why(error: Exception, name: ModelName, hub: Hub, access: HubAccess) -> str:
    """The fact and the cure. The order matters: some of these errors are kinds of others."""
    from huggingface_hub import errors

    page = f"https://huggingface.co/{hub.repo}"
    folder = f"or give a folder that holds it: {name.served}=FOLDER"
    match error:
        case errors.GatedRepoError():
            return f"the repository is gated; accept its licence on {page}, then {_TOKEN_CURE}"
        case errors.DisabledRepoError():
            return f"its owner or the hub has disabled the repository; see {page}, {folder}"
        case errors.RepositoryNotFoundError():
            return f"the hub has no such repository, or it is private; check the name, or {_TOKEN_CURE}"
        case errors.RevisionNotFoundError():
            return f"the repository has no revision {hub.revision or 'main'!r}; {page} shows what it has"
        case errors.HFValidationError():
            return f"this is no hub id: {_last_line(error)}"
        case errors.OfflineModeIsEnabled() | errors.LocalEntryNotFoundError() if _is_offline(error, access):
            how = (
                "is there only in part"
                if isinstance(error, errors.IncompleteSnapshotError)
                else "is not there"
            )
            return f"offline, so only the local cache was searched, and it {how}; {_OFFLINE_CURE}, {folder}"
        case errors.HfHubHTTPError() if error.response.status_code in (401, 403):
            return (
                f"the hub refused access ({error.response.status_code}); {_TOKEN_CURE} that may read {page}"
            )
        case errors.HfHubHTTPError():
            return f"the hub answered {error.response.status_code}; try again later, {folder}"
        case PermissionError() | NotADirectoryError():
            return f"the local cache cannot be written: {_last_line(error)}; HF_HOME says where it is"
        case OSError() if error.errno == errno.ENOSPC:
            return f"no space is left for it: {_last_line(error)}; HF_HOME says where the cache is"
        case _:
            cause = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) else None
            return (
                f"the download failed ({_last_line(cause or error)}); check the connection and proxies, "
                f"try again, {folder}"
            )


def _is_offline(error: Exception, access: HubAccess) -> bool:
    from huggingface_hub.errors import OfflineModeIsEnabled

    return (
        access.offline
        or isinstance(error, OfflineModeIsEnabled)
        or isinstance(error.__cause__, OfflineModeIsEnabled)
    )


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
