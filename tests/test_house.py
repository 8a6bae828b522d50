"""The house: three rooms, one package, arrows that go one way. Guards for what breaks in silence."""

import ast
import importlib
import importlib.metadata
import itertools
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from packaging.requirements import Requirement
from transformers.dynamic_module_utils import get_relative_import_files, get_relative_imports

from hf_seq2seq_attn import cli
from hf_seq2seq_attn.cli import EXTRA_OF_MODULE
from hf_seq2seq_attn.text_files import read_lines

ROOT = Path(__file__).parents[1]
# Folder in the tree -> folder in the installed package.
ROOMS = {
    "hf_seq2seq_attn": "hf_seq2seq_attn",
    "training": "hf_seq2seq_attn/training",
    "probing": "hf_seq2seq_attn/probing",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {extra: [Requirement(line) for line in lines] for extra, lines in PROJECT["optional-dependencies"].items()}
REQUIREMENTS = [*map(Requirement, PROJECT["dependencies"]), *itertools.chain.from_iterable(EXTRAS.values())]
CLI_FILES = {path.name for path in (ROOT / "hf_seq2seq_attn").glob("cli*.py")}
# What the Hub must not copy. Every other file of the room belongs to the model.
OUTSIDE_THE_MODEL = {
    "__init__.py",
    *CLI_FILES,
    "cores.py",
    "errors.py",
    "limits.py",
    "text_files.py",
    "tokenizer_pair.py",
}
OUTSIDE_THE_MODEL |= {"translation.py"}
MODEL_FILES = sorted(path for path in (ROOT / "hf_seq2seq_attn").glob("*.py") if path.name not in OUTSIDE_THE_MODEL)
ROOM_FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
# Each folder in it is a metric Space: data of the package, no part of it.
METRIC_MODULES = ROOT / "probing" / "metric_modules"
COMMANDS = sorted(
    command.name or command.callback.__name__.replace("_", "-") for command in cli.app.registered_commands
)


def name(path: Path) -> str:
    """Return the path as the tree has it, for test names."""
    return path.relative_to(ROOT).as_posix()


def imports(path: Path, top_level_only: bool = False) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements of a file; those inside functions too, unless `top_level_only`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def absolute_modules(path: Path, top_level_only: bool = False) -> set[str]:
    """Return the dotted names that a file imports absolutely, `from a import b` as both `a` and `a.b`."""
    modules = set()
    for node in imports(path, top_level_only):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif node.level == 0 and node.module:
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return modules


def enters(modules: set[str], *rooms: str) -> list[str]:
    """Return those of the modules that lie in one of the rooms."""
    packages = tuple(f"hf_seq2seq_attn.{room}" for room in rooms)
    return sorted(m for m in modules if any(m == p or m.startswith(p + ".") for p in packages))


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter, outside the checkout, as a user's shell would."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(sys.prefix), check=False)


# The wheel


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Build a source archive of a clean copy of the tree, a wheel from it; return the names in the wheel."""
    tree = tmp_path_factory.mktemp("tree")
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, tree)
    for room in ROOMS:
        shutil.copytree(ROOT / room, tree / room, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tree / "dist"), str(tree)]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = (tree / "dist").glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def test_the_wheel_holds_every_file_of_the_rooms(wheel_names: list[str]) -> None:
    expected = {
        f"{package}/{file.relative_to(ROOT / room).as_posix()}"
        for room, package in ROOMS.items()
        for file in (ROOT / room).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and file != ROOT / room / "README.md"
    }
    assert "hf_seq2seq_attn/py.typed" in expected
    assert {n for n in wheel_names if ".dist-info/" not in n} == expected


def test_the_wheel_ships_no_other_top_level_name(wheel_names: list[str]) -> None:
    tops = {n.partition("/")[0] for n in wheel_names}
    assert tops == {"hf_seq2seq_attn", f"hf_seq2seq_attn-{PROJECT['version']}.dist-info"}


def test_the_licence_is_the_whole_apache_text_and_travels(wheel_names: list[str]) -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert all(f"\n   {number}. " in text for number in range(1, 10))
    assert "APPENDIX: How to apply the Apache License to your work." in text
    assert any(n.endswith(".dist-info/licenses/LICENSE") for n in wheel_names)


# Names and arrows


def test_no_file_is_named_like_a_dependency() -> None:
    taken = {requirement.name.lower().replace("-", "_") for requirement in REQUIREMENTS}
    taken |= {"evaluate", "tokenize", "yaml"} | set(EXTRA_OF_MODULE)
    assert {"datasets", "tokenizers", "accelerate", "transformers", "torch"} <= taken
    assert [name(path) for path in ROOM_FILES if path.stem.lower() in taken] == []


def test_the_package_lists_every_folder_with_python_files() -> None:
    assert {name(path.parent) for path in ROOM_FILES if path.parents[1] != METRIC_MODULES} == set(ROOMS)


@pytest.mark.parametrize("path", MODEL_FILES, ids=name)
def test_model_files_import_so_that_the_hub_copies_them(path: Path) -> None:
    """Refuse what the Hub's copier, which reads lines by a regular expression, takes wrongly."""
    local = set()
    for node in imports(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            assert node.level == 1 and node.module and "." not in node.module, (
                f"line {node.lineno}: {ast.unparse(node)}"
            )
            local.add(node.module)
    assert set(get_relative_imports(path)) == local, "a line of text that reads like an import"
    own = [m for m in absolute_modules(path) if m.partition(".")[0] == "hf_seq2seq_attn"]
    assert own == [], "the copied file would not find the package"


@pytest.mark.parametrize("path", MODEL_FILES, ids=name)
def test_model_files_need_only_torch_and_transformers(path: Path) -> None:
    # numpy and huggingface_hub come with transformers, which builds its configurations from the latter's dataclasses.
    allowed = {"torch", "transformers", "huggingface_hub", "numpy"} | sys.stdlib_module_names
    assert {m.partition(".")[0] for m in absolute_modules(path)} <= allowed


def test_the_hub_copies_exactly_the_model_files() -> None:
    start = ROOT / "hf_seq2seq_attn" / "modeling_seq2seq_attn.py"
    closure = {start, *map(Path, get_relative_import_files(start))}
    assert closure == set(MODEL_FILES)


@pytest.mark.parametrize("path", sorted((ROOT / "hf_seq2seq_attn").glob("*.py")), ids=name)
def test_the_model_room_enters_no_other_room(path: Path) -> None:
    """The command line alone may, and only inside a command."""
    modules = absolute_modules(path, top_level_only=path.name in CLI_FILES)
    assert enters(modules, "training", "probing") == []


def test_probing_never_enters_training() -> None:
    files = sorted((ROOT / "probing").glob("*.py"))
    assert {name(p): found for p in files if (found := enters(absolute_modules(p), "training"))} == {}


@pytest.mark.parametrize("room", ["training", "probing"])
def test_rooms_are_entered_by_their_public_names(room: str) -> None:
    """Training uses what probing exports, not its files; nobody uses a relative import to cross a wall."""
    for path in sorted((ROOT / room).glob("*.py")):
        for node in imports(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                assert node.level < 2, f"{name(path)}:{node.lineno}"
                other = "probing" if room == "training" else "training"
                assert not node.module.startswith(f"hf_seq2seq_attn.{other}."), f"{name(path)}:{node.lineno}"


# Extras and the command line


def top_modules_after(code: str) -> set[str]:
    """Return the top-level modules (and our rooms) that a fresh interpreter holds after running the code."""
    listing = "\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    done = run_python(code + listing)
    assert done.returncode == 0, done.stderr
    modules = json.loads(done.stdout.splitlines()[-1])
    rooms = {m for m in modules if m in ("hf_seq2seq_attn.training", "hf_seq2seq_attn.probing")}
    return {m.partition(".")[0] for m in modules} | rooms


NEEDED_BY_COMMANDS_ONLY = {
    "bertviz",
    "datasets",
    "matplotlib",
    "pandas",
    "sacrebleu",
    "hf_seq2seq_attn.training",
    "hf_seq2seq_attn.probing",
}


def test_importing_the_package_takes_in_only_the_model() -> None:
    loaded = top_modules_after("import hf_seq2seq_attn")
    assert loaded & (NEEDED_BY_COMMANDS_ONLY | {"typer", "rich"}) == set()


def test_help_of_every_command_works_and_enters_no_room() -> None:
    code = f"""
import typer.testing
from hf_seq2seq_attn.cli import app
for command in {[None, *COMMANDS]!r}:
    arguments = [command, "--help"] if command else ["--help"]
    result = typer.testing.CliRunner().invoke(app, arguments)
    assert result.exit_code == 0 and "Usage:" in result.output, (arguments, result.output, result.exception)
    assert command is not None or all(name in result.output for name in {COMMANDS!r}), result.output
"""
    assert top_modules_after(code) & NEEDED_BY_COMMANDS_ONLY == set()


def test_the_console_script_is_installed() -> None:
    scripts = importlib.metadata.entry_points(group="console_scripts", name="seq2seq-attn")
    assert {script.value for script in scripts} == {"hf_seq2seq_attn.cli:main"}
    done = subprocess.run([Path(sys.executable).with_name("seq2seq-attn"), "--help"], capture_output=True, check=False)
    assert done.returncode == 0 and b"Usage: seq2seq-attn" in done.stdout


def run_main(monkeypatch: pytest.MonkeyPatch, command: Callable[[], None]) -> object:
    """Run the command line with a single command in place of ours; return its exit code."""
    stand_in = typer.Typer(pretty_exceptions_enable=False)
    stand_in.command()(command)
    monkeypatch.setattr(cli, "app", stand_in)
    monkeypatch.setattr(sys, "argv", ["seq2seq-attn"])
    with pytest.raises(SystemExit) as exit_of:
        cli.main()
    return exit_of.value.code


@pytest.mark.parametrize(("module", "extra"), sorted(EXTRA_OF_MODULE.items()))
def test_a_missing_extra_is_one_line_and_exit_code_2(
    module: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # an import of it now fails as if it were not installed
    assert run_main(monkeypatch, lambda: importlib.import_module(module)) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == f"this command needs {module}: pip install 'hf-seq2seq-attn[{extra}]'\n"


def test_a_module_missing_for_another_reason_is_not_called_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        run_main(monkeypatch, lambda: importlib.import_module("no_such_module_anywhere"))


def test_bad_input_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = tmp_path / "verses.txt"
    assert run_main(monkeypatch, lambda: read_lines(missing)) == 2
    assert capsys.readouterr().err == f"{missing}: no such file; check the path\n"


def test_every_import_of_the_rooms_is_declared() -> None:
    """A module that no dependency brings would be missing in a bare install, with a traceback."""
    bare = {"torch", "transformers", "typer", "hf_seq2seq_attn"} | sys.stdlib_module_names
    # These come with transformers.
    bare |= {"huggingface_hub", "numpy", "safetensors", "tokenizers", "tqdm", "yaml"}
    used = {m.partition(".")[0] for path in ROOM_FILES for m in absolute_modules(path)}
    assert used - bare <= set(EXTRA_OF_MODULE)


@pytest.mark.parametrize(("module", "extra"), sorted(EXTRA_OF_MODULE.items()))
def test_the_named_extra_brings_the_module(module: str, extra: str) -> None:
    (distribution,) = set(importlib.metadata.packages_distributions()[module])
    assert distribution.lower() in {requirement.name.lower() for requirement in EXTRAS[extra]}


def test_constraints_pin_every_declared_dependency() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pins = {re.sub(r"[-_.]+", "-", distribution).lower(): version for distribution, version in pins.items()}
    assert all("+" not in version for version in pins.values()), "a local version cannot be installed elsewhere"
    for requirement in REQUIREMENTS:
        if requirement.name != PROJECT["name"]:
            assert requirement.specifier.contains(pins[requirement.name.lower()]), requirement
