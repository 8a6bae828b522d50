"""Share a run directory on the Hugging Face Hub: a folder that is whole, and nothing in it that executes on loading."""

import glob
import json
import sys
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

from huggingface_hub import HfApi, get_token, is_offline_mode
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id
from safetensors import SafetensorError, safe_open
from transformers.dynamic_module_utils import get_relative_imports

from hf_seq2seq_attn.text_files import InputError

from .run_record import LINKS_FOLDER, TENSORBOARD_FOLDER

CONFIG, CARD = "config.json", "README.md"
WEIGHTS, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZER_FILES = ("tokenizer.json", "spiece.model", "source.spm", "vocab.json", "vocab.txt")
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib")

# The HTTP library's own base class, for when no answer comes; which library it is depends on the client's version.
_NO_ANSWER: type[Exception] = HfHubHTTPError.__bases__[0]


@dataclass(frozen=True)
class PushPlan:
    """What is uploaded, in the order of names.

    Attributes:
        files: (name in the repository, size in bytes).
        left_out: (name in the folder, why it stays here).
        remarks: what whoever loads the model will miss.
        url: where the files lie now; None while nothing was uploaded.
    """

    files: tuple[tuple[str, int], ...]
    left_out: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]
    url: str | None = None


def push(
    run_dir: str | Path,
    repo_id: str,
    *,
    private: bool = False,
    token: str | None = None,
    revision: str | None = None,
    dry_run: bool = False,
) -> PushPlan:
    """Upload a model folder to the Hub, as one repository that the Auto classes load.

    Pickles, checkpoints, hidden files and caches stay here; the plan names each with the reason.

    Args:
        repo_id: `user/name`, or `name` for the user of the token. Made if it does not exist.
        private: make a new repository private; one that exists stays as it is.
        token: None = the one of `hf auth login` or of HF_TOKEN.
        revision: a branch, made if it does not exist; None = main.
        dry_run: return the plan, upload nothing, ask nobody.

    Raises:
        InputError: the folder is no model (it says what is missing), a bad repository name, no token, no network,
            or a refusal by the Hub.
    """
    folder = Path(run_dir)
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise InputError(f"{repo_id}: not a repository name ({error}); write user/name") from error
    plan = plan_push(folder)
    if dry_run:
        return plan
    if is_offline_mode():
        raise InputError("push: HF_HUB_OFFLINE is set, so nothing can be uploaded; unset it, or try --dry-run")
    token = token or get_token()
    if token is None:
        raise InputError("push: no token of the Hub; log in by `hf auth login`, or set HF_TOKEN to one that may write")
    return replace(plan, url=_upload(folder, repo_id, plan, private, token, revision))


def push_folder(run_dir: Path, repo_id: str, *, private: bool, revision: str | None, dry_run: bool) -> None:
    """Do what `push` does, and print the files (`name TAB bytes`) to stdout, the rest to stderr."""
    plan = push(run_dir, repo_id, private=private, revision=revision, dry_run=dry_run)
    for name, size in plan.files:
        print(f"{name}\t{size}")
    for name, reason in plan.left_out:
        print(f"left out: {name} ({reason})", file=sys.stderr)
    for remark in plan.remarks:
        print(f"remark: {remark}", file=sys.stderr)
    total = f"{len(plan.files)} files, {sum(size for _, size in plan.files):,} bytes"
    where = f"would go to {repo_id}; nothing was uploaded" if plan.url is None else f"are at {plan.url}"
    print(f"{total} {where}", file=sys.stderr)


def plan_push(folder: Path) -> PushPlan:
    """Return what `push` uploads from a folder.

    Raises:
        InputError: the folder is not a model that others can load; the message lists all that is missing.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the run directory of `seq2seq-attn train`")
    files: list[tuple[str, int]] = []
    left_out: list[tuple[str, str]] = []
    _sort_files(folder, folder, files, left_out)
    missing = _missing(folder, {name for name, _ in files})
    if missing:
        raise InputError(f"{folder}: not a model to share: {'; '.join(missing)}")
    remarks = []
    if CARD not in {name for name, _ in files}:
        remarks.append(f"there is no {CARD}: nobody will know what this model is or where it comes from")
    return PushPlan(tuple(files), tuple(left_out), tuple(remarks))


def _sort_files(root: Path, folder: Path, files: list[tuple[str, int]], left_out: list[tuple[str, str]]) -> None:
    """Put each file below `folder` into one of the two lists, a folder that stays here as a whole."""
    for path in sorted(folder.iterdir()):
        name = path.relative_to(root).as_posix()
        reason = _reason_to_leave_out(path)
        if reason is not None:
            left_out.append((name + "/" * path.is_dir(), reason))
        elif path.is_dir():
            _sort_files(root, path, files, left_out)
        else:
            files.append((name, path.stat().st_size))


def _reason_to_leave_out(path: Path) -> str | None:
    if path.name.startswith("."):
        return "hidden"
    if path.name == "__pycache__":
        return "a cache"
    if path.is_dir():
        is_checkpoint = path.name == "checkpoints" or path.name.startswith("checkpoint-")
        if path.name == LINKS_FOLDER:
            return "links of the training text"
        if path.name == TENSORBOARD_FOLDER:
            return "logs of the training"
        return "checkpoints hold pickles" if is_checkpoint else None
    if not path.is_file():
        return "not a plain file"
    if path.suffix.lower() in PICKLE_SUFFIXES or _holds_pickle(path):
        return "a pickle: loading it would run code"
    return None


def _holds_pickle(path: Path) -> bool:
    """Tell a pickle by its first bytes, whatever its name: bare, or in torch's zip file."""
    with path.open("rb") as stream:
        start = stream.read(2)
    if start == b"PK" and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(".pkl") for name in archive.namelist())
    return len(start) == 2 and start[0] == 0x80 and 2 <= start[1] <= 5


def _missing(folder: Path, names: set[str]) -> list[str]:
    """Return what keeps these files of the folder from being a model that loads elsewhere, each in words."""
    missing = []
    config: dict[str, object] = {}
    if CONFIG not in names:
        missing.append(f"{CONFIG} is missing (model.save_pretrained writes it)")
    else:
        config = _read_json(folder / CONFIG)
        if "model_type" not in config:
            missing.append(f"{CONFIG} names no model_type")
    missing += _missing_weights(folder, names)
    if not names & set(TOKENIZER_FILES):
        missing.append("there is no tokenizer (tokenizer.save_pretrained writes it)")
    return missing + _missing_code(folder, config, names)


def _missing_weights(folder: Path, names: set[str]) -> list[str]:
    if WEIGHTS in names:
        shards = [WEIGHTS]
    elif WEIGHTS_INDEX in names:
        weight_map = _read_json(folder / WEIGHTS_INDEX).get("weight_map")
        shards = sorted(set(weight_map.values())) if isinstance(weight_map, dict) else []
    else:
        return [f"{WEIGHTS} is missing (weights in a pickle are not shared)"]
    missing = []
    for shard in shards:
        if shard not in names:
            missing.append(f"{shard} is missing")
            continue
        try:
            with safe_open(folder / shard, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            missing.append(f"{shard} cannot be read ({error}): is the copy whole?")
    return missing


def _missing_code(folder: Path, config: dict[str, object], names: set[str]) -> list[str]:
    """Return the Python files that the config's `auto_map` names, or that those import, and that are not there."""
    auto_map = config.get("auto_map")
    references = auto_map.values() if isinstance(auto_map, dict) else ()
    # A name of the form `repository--module.Class` lies elsewhere.
    pending = {f"{str(name).partition('.')[0]}.py" for name in references if "--" not in str(name)}
    seen: set[str] = set()
    while pending:
        file = pending.pop()
        seen.add(file)
        if file in names:
            pending |= {f"{module}.py" for module in get_relative_imports(folder / file)} - seen
    return [f"{file}, which {CONFIG} needs as code, is missing" for file in sorted(seen - names)]


def _read_json(path: Path) -> dict[str, object]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}:{getattr(error, 'lineno', 1)}: not JSON ({error}); save the model anew") from error
    if not isinstance(tree, dict):
        raise InputError(f"{path}:1: holds no table; save the model anew")
    return tree


def _upload(folder: Path, repo_id: str, plan: PushPlan, private: bool, token: str, revision: str | None) -> str:
    api = HfApi(token=token)
    try:
        repo_id = api.create_repo(repo_id, private=private or None, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        api.upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            revision=revision,
            commit_message="Upload a model with its tokenizer, code and card",
            # Patterns, and of names that may hold what patterns are made of.
            allow_patterns=[glob.escape(name) for name, _ in plan.files],
        )
    except HfHubHTTPError as error:
        raise InputError(f"{repo_id}: refused by {api.endpoint} ({_what_the_hub_says(error)})") from error
    except _NO_ANSWER as error:
        raise InputError(f"push: no answer from {api.endpoint} ({error}); check the network and HF_ENDPOINT") from error
    return f"{api.endpoint}/{repo_id}" + (f"/tree/{revision}" if revision else "")


def _what_the_hub_says(error: HfHubHTTPError) -> str:
    said = error.server_message or (str(error).strip().splitlines() or ["no reason given"])[0]
    remedy = {
        401: "; check the token, e.g. by `hf auth whoami`",
        403: "; take a token that may write there",
    }.get(error.response.status_code, "")
    return " ".join(said.split()) + remedy
