"""Would the tests notice a fault? Change one thing in metrics, stats or auditing, run the tests that reach it, count.

A mutant is one comparison, operator, number, returned value or statement changed. The sample follows from the seed and
from what the code says, so that an edit elsewhere does not change it. First every test is run once, to learn which
functions it calls; then each mutant meets the fastest tests that call its function, until one fails. Results are kept
in build/mutants, and the same command resumes; tests of changed files are learned anew, and `--again` tries survivors
again. tools/mutants_equivalent.toml names mutants that change no result, with the reason.

Run `python tools/mutants.py --again --write`, which is `make mutants`; `--write` records the score in
docs/reliability.md.
"""

import argparse
import ast
import gc
import hashlib
import importlib.machinery
import importlib.util
import json
import math
import os
import resource
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
HOUSE, KEPT, PAGE = ROOT / "src" / "ruler", ROOT / "build" / "mutants", ROOT / "docs" / "reliability.md"
EQUIVALENT = ROOT / "tools" / "mutants_equivalent.toml"
BEGIN, END = "<!-- measured: mutants -->", "<!-- end -->"
ROOMS = ("metrics", "stats", "auditing")
TESTS = [*(f"tests/{room}" for room in ROOMS), "tests/laws", *(f"src/ruler/{room}" for room in ROOMS)]
OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "no:unraisableexception", "-m", "not slow and not gpu and not cluster"]
PRELOADED = ("sklearn.decomposition", "sklearn.linear_model", "scipy.optimize", "pandas", "pyarrow.parquet", "torch")
LEFT_OUT = {"report", "seal"}  # pages and signatures: no part in the verdict
SLOWEST_S, BUDGET_S = 4.0, 6.0  # CPU time of one test, and of all that meet one mutant
PAIRS = "Eq NotEq, Is IsNot, In NotIn, And Or, Add Sub, Mult Div, BitAnd BitOr, LShift RShift"
TURNS = "Lt LtE GtE, LtE Lt Gt, Gt GtE LtE, GtE Gt Lt, Pow Mult, FloorDiv Mult, MatMult Mult"
SWAPS: dict[type, list[type]] = {
    getattr(ast, old): [getattr(ast, new) for new in others]
    for text in (PAIRS, TURNS, ", ".join(" ".join(pair.split()[::-1]) for pair in PAIRS.split(", ")))
    for old, *others in map(str.split, text.split(", "))
}
SKIPPED = {"annotation", "returns", "decorator_list", "type_params", "bases"}


def alternatives(node: ast.AST) -> list[ast.AST]:
    """What may stand in the place of a node."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=rest):
            return [ast.Compare(left, [new()], rest) for new in SWAPS.get(type(op), ())]
        case ast.BinOp(left=left, op=op, right=right):
            return [ast.BinOp(left, new(), right) for new in SWAPS.get(type(op), ())]
        case ast.BoolOp(op=op, values=values):
            return [ast.BoolOp(new(), values) for new in SWAPS[type(op)]]
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            return [operand]
        case ast.Constant(value=bool(value)):
            return [ast.Constant(not value)]
        case ast.Constant(value=int() | float() as value):
            return [ast.Constant(value + 1)]
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            return [ast.Return(ast.Constant(None))]
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise():
            return [ast.Pass()]
    return []


def mutate(node: ast.AST, function: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Change one place below a node after another: (function, change), undone when the next one is asked for."""
    if isinstance(node, ast.JoinedStr | ast.Raise) or (isinstance(node, ast.keyword) and node.arg == "strict"):
        return  # wording, and checks of our own loops
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and depth < 2:
        function, depth = f"{function}.{node.name}".strip("."), 2 if isinstance(node, ast.FunctionDef) else 1
    for name, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        for place, child in enumerate(children if name not in SKIPPED else ()):
            if not isinstance(child, ast.AST):
                continue
            for new in alternatives(child):
                ast.fix_missing_locations(ast.copy_location(new, child))
                _put(node, name, place, new)
                yield function or "(module)", f"{ast.unparse(child)} -> {ast.unparse(new)}"
                _put(node, name, place, child)
            yield from mutate(child, function, depth)


def _put(node: ast.AST, name: str, place: int, new: ast.AST) -> None:
    value = getattr(node, name)
    if isinstance(value, list):
        value[place] = new
    else:
        setattr(node, name, new)


def list_mutants(file: Path) -> Iterator[tuple[str, str, ast.Module]]:
    """(key, function, tree that holds the change) of every mutant of a file."""
    tree, seen = ast.parse(file.read_text(encoding="utf-8")), dict[str, int]()
    for function, change in mutate(tree):
        key = f"{file.relative_to(HOUSE)} {function}: {' '.join(change.split())}"
        seen[key] = seen.get(key, 0) + 1
        yield key if seen[key] == 1 else f"{key} ({seen[key]})", function, tree


def sample(count: int, seed: int) -> tuple[list[tuple[str, Path]], int]:
    """The mutants to try, by file, and how many there are."""
    files = [file for room in ROOMS for file in (HOUSE / room).rglob("*.py") if not LEFT_OUT & {*file.parts}]
    drawn = [(key, file) for file in files for key, _, _ in list_mutants(file)]
    drawn.sort(key=lambda one: hashlib.sha256(f"{seed} {one[0]}".encode()).hexdigest())
    return sorted(drawn[:count], key=lambda one: str(one[1])), len(drawn)


class Recorder:
    """A pytest plugin that notes CPU seconds and called functions of every test that passes."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Run a test under a profile function, and stop it when it takes too long."""
        called, start, where = set[str](), time.process_time(), str(HOUSE) + os.sep

        def note(frame: Any, event: str, _: object) -> None:
            if event == "call" and frame.f_code.co_filename.startswith(where):
                name = frame.f_code.co_qualname.split(".<locals>")[0]
                called.add(f"{frame.f_code.co_filename.removeprefix(where)} {name}")

        signal.setitimer(signal.ITIMER_PROF, SLOWEST_S)
        sys.setprofile(note)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            signal.setitimer(signal.ITIMER_PROF, 0)
            seconds = time.process_time() - start
            if seconds < SLOWEST_S:
                self.found[item.nodeid] = {"seconds": seconds, "calls": sorted(called)}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Forget a test that does not pass."""
        if not report.passed:
            self.found.pop(report.nodeid, None)


def learn(files: list[str]) -> dict[str, Any]:
    """Run tests once and return what they take and call."""

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, stop)
    recorder = Recorder()
    pytest.main([*OPTIONS, *files], plugins=[recorder])
    return recorder.found


def survey() -> dict[str, Any]:
    """What each test takes and calls; files of tests are run again when they changed."""
    path, known = KEPT / "tests.json", dict[str, Any]()
    if path.exists():
        known = json.loads(path.read_text())
    files = {
        str(file.relative_to(ROOT)): hashlib.sha256(file.read_bytes()).hexdigest()
        for folder in TESTS
        for file in sorted((ROOT / folder).rglob("*.py"))
        if (file.name.startswith("test_") or ">>>" in file.read_text(encoding="utf-8")) and not LEFT_OUT & {*file.parts}
    }
    stale = [file for file, digest in files.items() if known.get(file, {}).get("digest") != digest]
    if stale:
        found = _in_child(lambda: learn(stale), KEPT / "learned.json")
        for file in stale:
            own = {name: one for name, one in found.items() if name.split("::")[0] == file}
            known[file] = {"digest": files[file], "tests": own}
        path.write_text(json.dumps({file: known[file] for file in files}))
    return {name: one for file in files for name, one in known[file]["tests"].items()}


def _in_child(work: Callable[[], Any], answer: Path, seconds: float = math.inf) -> Any:
    """Run in a forked process and return what it wrote; None where it died, which a time limit sees to."""
    answer.unlink(missing_ok=True)
    process = os.fork()
    if process == 0:
        try:
            if seconds < math.inf:
                resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds)))
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1), os.dup2(silent, 2)
            answer.write_text(json.dumps(work()))
        finally:
            os._exit(0)
    os.waitpid(process, 0)
    return json.loads(answer.read_text()) if answer.exists() else None


class Loader(importlib.machinery.SourceFileLoader):
    """Imports one module from a changed tree instead of its file."""

    def __init__(self, name: str, file: Path, tree: ast.Module) -> None:
        super().__init__(name, str(file))
        self.tree = tree

    def get_code(self, fullname: str) -> Any:
        """Compile the tree."""
        return compile(self.tree, self.path, "exec")

    def find_spec(self, name: str, *_: object) -> Any:
        """Serve the one module."""
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None


def judge(file: Path, tree: ast.Module, tests: list[str], seconds: float) -> str:
    """Whether some test fails with the tree in the place of the file."""
    name = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")

    def try_tests() -> int:
        sys.meta_path.insert(0, Loader(name, file, tree))
        try:
            importlib.import_module(name)  # before pytest, which would read doctests from the file itself
        except Exception:
            return 1
        return int(pytest.main([*OPTIONS, "-x", *tests]))

    code = _in_child(try_tests, KEPT / "code.json", 20 + 4 * seconds)
    return {None: "killed by time", 0: "survived", 4: "tests not found", 5: "tests not found"}.get(code, "killed")


def choose_tests(known: dict[str, Any], file: Path, function: str) -> tuple[list[str], float]:
    """The fastest tests that call a function or, if none does, its file, and the seconds they take."""
    own = f"{file.relative_to(HOUSE)} "
    callers = [name for name, one in known.items() if own + function in one["calls"]]
    callers = callers or [name for name, one in known.items() if any(call.startswith(own) for call in one["calls"])]
    chosen, seconds = list[str](), 0.0
    for name in sorted(callers, key=lambda name: known[name]["seconds"]):
        seconds += known[name]["seconds"]
        if seconds > BUDGET_S:
            break
        chosen.append(name)
    return chosen, seconds


def try_mutants(drawn: list[tuple[str, Path]], equivalent: dict[str, str], tried_again: set[str]) -> dict[str, str]:
    """Outcome of every drawn mutant, kept as it comes; outcomes ``tried_again`` are not final."""
    path, known = KEPT / "results.json", survey()
    results: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    pytest.main([*OPTIONS, "--collect-only", "-qqq", *TESTS])  # children find other packages loaded, and import ours
    for name in PRELOADED:
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.split(".")[0] in ("ruler", "tests", "benchmarks")]:
        del sys.modules[name]
    gc.freeze()
    for file in sorted({file for _, file in drawn}):
        wanted = {key for key, one in drawn if one == file and (results.get(key) in tried_again or key not in results)}
        wanted -= {key for key in equivalent if key in results}
        if not wanted:
            continue
        control = judge(file, ast.parse(file.read_text(encoding="utf-8")), *choose_tests(known, file, "(module)"))
        if control != "survived":
            raise SystemExit(f"{file} unchanged: {control}. Its tests must pass before mutants can be judged.")
        for key, function, tree in list_mutants(file):
            if key in wanted:
                tests, seconds = choose_tests(known, file, function)
                results[key] = judge(file, tree, tests, seconds) if tests else "survived"
                path.write_text(json.dumps(results, indent=1))
                print(f"{results[key]:15} {key}", flush=True)
    return {key: results[key] for key, _ in drawn if key in results}


def describe(results: dict[str, str], equivalent: dict[str, str], n_all: int) -> str:
    """The section of docs/reliability.md."""
    lines = ["| room | mutants | killed | equivalent | survived | score |", "|---|---|---|---|---|---|"]
    survivors = [key for key, outcome in results.items() if "killed" not in outcome]
    for room in (*ROOMS, ""):
        own = [key for key in results if key.startswith(room)]
        alike = [key for key in survivors if key in equivalent and key.startswith(room)]
        left = [key for key in survivors if key not in equivalent and key.startswith(room)]
        n_killed = len(own) - len(alike) - len(left)
        score = n_killed / max(1, n_killed + len(left))
        lines.append(f"| {room or 'all'} | {len(own)} | {n_killed} | {len(alike)} | {len(left)} | {score:.1%} |")
    lines += [
        "",
        f"A seeded sample of {len(results):,} of {n_all:,} mutants. Score: killed over all but equivalent.",
        "",
    ]
    lines += ["| not killed | why |", "|---|---|"]
    cell = str.maketrans({"|": "\\|"})
    lines += [f"| `{key.translate(cell)}` | {equivalent.get(key, 'survived: no test sees it')} |" for key in survivors]
    return "\n".join(lines)


def main() -> None:
    """Draw, try, tell and, if asked to, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="try survivors again")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    listed = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))
    equivalent = {key: one["reason"] for one in listed["equivalent"] for key in one["mutants"]}
    drawn, n_all = sample(asked.count, asked.seed)
    results = try_mutants(drawn, equivalent, {"survived", "tests not found"} if asked.again else set())
    section = describe(results, equivalent, n_all)
    print(section)
    if asked.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n{section}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
