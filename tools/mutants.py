"""Would the tests notice a fault? Change one thing in metrics, stats or auditing, run the tests that reach it, count.

A mutant is one comparison, operator, number, returned value or statement changed. The sample follows from the seed and
from what the code says, so that an edit elsewhere does not change it. First every test is run once, to learn which
functions it calls; then each mutant meets the fastest tests that call its function, until one fails. Each runs in a
process that is forked from one pytest session and given the changed code; `--jobs` runs several at once. Results are
kept in build/mutants, and the same command resumes; tests of changed files are learned anew, and `--again` tries
survivors again.
tools/mutants_equivalent.toml names mutants that change no result, with the reason.

Run `python tools/mutants.py --again --write`, which is `make mutants`; `--write` records the score in
docs/reliability.md.
"""

import argparse
import ast
import gc
import hashlib
import importlib.machinery
import importlib.util
import io
import json
import math
import os
import resource
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).resolve().parents[1]
HOUSE, KEPT, PAGE = ROOT / "src" / "ruler", ROOT / "build" / "mutants", ROOT / "docs" / "reliability.md"
EQUIVALENT = ROOT / "tools" / "mutants_equivalent.toml"
BEGIN, END = "<!-- measured: mutants -->", "<!-- end -->"
ROOMS = ("metrics", "stats", "auditing")
LEFT_OUT = {"report", "seal"}  # pages and signatures: no part in the verdict
TESTS = [*(f"tests/{room}" for room in ROOMS), "tests/laws", *(f"src/ruler/{room}" for room in ROOMS)]
OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "no:unraisableexception", "-m", "not slow and not gpu and not cluster"]
SLOWEST_S, BUDGET_S = 4.0, 10.0  # CPU time of one test, and of all that meet one mutant by default
PAIRS = "Eq NotEq, Is IsNot, In NotIn, And Or, Add Sub, Mult Div, BitAnd BitOr, LShift RShift"
TURNS = "Lt LtE GtE, LtE Lt Gt, Gt GtE LtE, GtE Gt Lt, Pow Mult, FloorDiv Mult, MatMult Mult"
SWAPS: dict[type, list[type]] = {
    getattr(ast, old): [getattr(ast, new) for new in others]
    for text in (PAIRS, TURNS, ", ".join(" ".join(pair.split()[::-1]) for pair in PAIRS.split(", ")))
    for old, *others in map(str.split, text.split(", "))
}
SKIPPED = {"annotation", "returns", "decorator_list", "bases"}


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
            for new in alternatives(child):
                ast.fix_missing_locations(ast.copy_location(new, child))
                _put(node, name, place, new)
                yield function or "(module)", f"{ast.unparse(child)} -> {ast.unparse(new)}"
                _put(node, name, place, child)
            if isinstance(child, ast.AST):
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


def sample(count: int, seeds: list[int]) -> tuple[list[tuple[str, Path]], int]:
    """The mutants to try, so many for every seed, by file; and how many there are."""
    files = [file for room in ROOMS for file in (HOUSE / room).rglob("*.py") if not LEFT_OUT & {*file.parts}]
    every = [(key, file) for file in files for key, _, _ in list_mutants(file)]
    drawn = set[tuple[str, Path]]()
    for seed in seeds:
        every.sort(key=lambda one: hashlib.sha256(f"{seed} {one[0]}".encode()).hexdigest())
        drawn.update(every[:count])
    return sorted(drawn, key=lambda one: (str(one[1]), one[0])), len(every)


def in_child(work: Callable[[], Any], seconds: float = math.inf) -> Any:
    """What ``work`` returns in a forked process; None where it died, which a limit of CPU time sees to."""
    answer = KEPT / f"answer-{os.getpid()}.json"
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
    found = json.loads(answer.read_text()) if answer.exists() else None
    answer.unlink(missing_ok=True)
    return found


def share(work: Callable[[Any], None], items: list[Any], jobs: int) -> None:
    """Do the work for every item, in so many forked processes, each of which takes the next one that is left."""
    tickets, sender = os.pipe()
    os.write(sender, b"".join(number.to_bytes(4, "big") for number in range(len(items))))
    os.close(sender)
    workers = []
    for _ in range(jobs):
        workers.append(os.fork())
        if workers[-1] == 0:
            try:
                while ticket := os.read(tickets, 4):
                    work(items[int.from_bytes(ticket, "big")])
                os._exit(0)
            except BaseException as error:  # this process must never return into pytest
                print(f"\n{error}", file=sys.stderr, flush=True)
                os._exit(1)
    os.close(tickets)
    statuses = [os.waitpid(worker, 0)[1] for worker in workers]
    if any(statuses):
        raise SystemExit("Every process must end well; got one that did not.")


def append_line(path: Path, name: str, what: Any) -> None:
    """Append one line, in one write, so that several processes may."""
    with path.open("ab", buffering=0) as stream:
        stream.write(f"{json.dumps([name, what])}\n".encode())


def read_notes(path: Path) -> dict[str, Any]:
    """What was noted last under each name."""
    return dict(map(json.loads, path.read_text().splitlines())) if path.exists() else {}


def passes(item: pytest.Item) -> bool:
    """Run one test of the session."""
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def learn(items: list[pytest.Item]) -> dict[str, Any]:
    """CPU seconds and called functions of every test that passes in time."""

    def stop(*_: object) -> None:
        raise TimeoutError

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(where):
            name = frame.f_code.co_qualname.split(".<locals>")[0]
            called.add(f"{frame.f_code.co_filename.removeprefix(where)} {name}")

    found, where = {}, f"{HOUSE}{os.sep}"
    signal.signal(signal.SIGPROF, stop)
    for item in items:
        called, start = set[str](), time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SLOWEST_S)
        sys.setprofile(note)
        is_passed = passes(item)
        sys.setprofile(None)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if is_passed:
            found[item.nodeid] = {"seconds": time.process_time() - start, "calls": sorted(called)}
    return found


def survey(items: list[pytest.Item], jobs: int) -> dict[str, Any]:
    """What each test takes and calls; files of tests are run again when they changed."""
    path = KEPT / "tests.jsonl"
    known = read_notes(path)
    by_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(item.nodeid.split("::")[0], []).append(item)
    digests = {file: hashlib.sha256((ROOT / file).read_bytes()).hexdigest() for file in by_file}

    def look(file: str) -> None:
        tests = in_child(partial(learn, by_file[file])) or {}
        append_line(path, file, {"digest": digests[file], "tests": tests})

    changed = [file for file in by_file if known.get(file, {}).get("digest") != digests[file]]
    share(look, sorted(changed, key=lambda file: -len(by_file[file])), jobs)
    known, names = read_notes(path), {item.nodeid for item in items}
    return {name: one for file in by_file for name, one in known[file]["tests"].items() if name in names}


class Loader(importlib.machinery.SourceFileLoader):
    """Imports one module from code that is not its file's."""

    def __init__(self, name: str, file: Path, code: CodeType) -> None:
        super().__init__(name, str(file))
        self.code = code

    def get_code(self, fullname: str) -> CodeType:
        """Return the other code."""
        return self.code

    def find_spec(self, name: str, *_: object) -> Any:
        """Serve the one module."""
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None


def list_code(code: CodeType) -> Iterator[CodeType]:
    """A code object and those inside it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from list_code(one)


def are_same(one: CodeType, other: CodeType) -> bool:
    """Whether two code objects do the same; `==` also compares what the interpreter noted while it ran them."""
    names = ("co_code", "co_names", "co_varnames", "co_freevars", "co_flags", "co_exceptiontable")
    if any(getattr(one, name) != getattr(other, name) for name in names) or len(one.co_consts) != len(other.co_consts):
        return False
    return all(
        are_same(a, b)
        if isinstance(a, CodeType) and isinstance(b, CodeType)
        else (type(a), repr(a)) == (type(b), repr(b))
        for a, b in zip(one.co_consts, other.co_consts, strict=True)
    )


def judge(
    file: Path, tree: ast.Module, tests: list[pytest.Item], *, is_control: bool = False, budget_s: float = BUDGET_S
) -> str:
    """Whether some test fails with the tree in the place of the file; a control runs them in both ways."""
    module = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")

    def try_tests() -> bool:
        code = compile(tree, str(file), "exec")
        parts = {(one.co_qualname, one.co_firstlineno): one for one in list_code(code)}
        is_changed = False
        gc.unfreeze()  # what tests/conftest.py keeps from the collector is not listed
        for one in gc.get_objects():
            if type(one) is FunctionType and one.__code__.co_filename == str(file):
                new = parts[one.__code__.co_qualname, one.__code__.co_firstlineno]
                is_changed |= not are_same(new, one.__code__)
                one.__code__ = new
        if is_changed:
            return all(map(passes, tests))
        if is_control and not all(map(passes, tests)):
            return False
        # a value of the module, a class or a signature: import everything anew
        for name in [name for name in sys.modules if name.split(".")[0] in ("ruler", "tests", "benchmarks")]:
            del sys.modules[name]
        sys.meta_path.insert(0, Loader(module, file, code))
        importlib.import_module(module)  # before pytest, which would read doctests from the file itself
        with redirect_stdout(io.StringIO()):
            return pytest.main([*OPTIONS, "-x", *(item.nodeid for item in tests)]) == 0

    return "survived" if in_child(try_tests, 20 + 4 * budget_s) else "killed"


def choose_tests(known: dict[str, Any], file: Path, function: str, budget_s: float = BUDGET_S) -> list[str]:
    """The fastest tests that call a function or, if none does, its file; for values in it also those beside its own."""
    own = f"{file.relative_to(HOUSE)} "
    mirror = str(Path("tests") / file.relative_to(HOUSE).with_name(f"test_{file.name}"))
    callers = [name for name, one in known.items() if own + function in one["calls"]]
    beside: list[str] = []
    if not callers:
        is_near = {
            name: name.startswith(mirror) or any(call.startswith(own) for call in one["calls"])
            for name, one in known.items()
        }
        callers = [name for name in known if is_near[name]]
        beside = [
            name for name in known if not is_near[name] and Path(name.split("::")[0]).parent == Path(mirror).parent
        ]

    def cost(name: str) -> float:
        return float(known[name]["seconds"])

    chosen, seconds = list[str](), 0.0
    for name in sorted([*callers, *beside], key=cost):
        seconds += cost(name)
        if seconds > budget_s:
            break
        chosen.append(name)
    return chosen


class Trial:
    """A pytest plugin: tries mutants instead of running the tests once."""

    def __init__(
        self, drawn: list[tuple[str, Path]], equivalent: dict[str, str], *, is_again: bool, jobs: int, budget_s: float
    ) -> None:
        self.drawn, self.equivalent, self.is_again = drawn, equivalent, is_again
        self.jobs, self.budget_s = jobs, budget_s
        self.results: dict[str, str] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Learn what the tests call, then try every mutant that has no final result."""
        items = {item.nodeid: item for item in session.items if "report" not in item.path.parts}
        path, known = KEPT / "results.jsonl", survey(list(items.values()), self.jobs)
        kept = read_notes(path)
        wanted = {key for key, _ in self.drawn if self._is_open(key, kept)}

        def control(file: Path) -> None:
            tests = [items[name] for name in choose_tests(known, file, "(module)")[:10]]
            unchanged = ast.parse(file.read_text(encoding="utf-8"))
            if tests and judge(file, unchanged, tests, is_control=True) != "survived":
                raise SystemExit(f"Tests of {file} must pass before mutants can be judged; got a failure.")

        def try_mutant(one: tuple[str, Path]) -> None:
            key, file = one
            function, tree = next((function, tree) for name, function, tree in list_mutants(file) if name == key)
            tests = [items[name] for name in choose_tests(known, file, function, self.budget_s)]
            outcome = judge(file, tree, tests, budget_s=self.budget_s) if tests else "survived"
            append_line(path, key, outcome)
            print(f"\n{outcome:9} {key}", end="", flush=True)

        share(control, sorted({file for key, file in self.drawn if key in wanted}), self.jobs)
        share(try_mutant, [one for one in self.drawn if one[0] in wanted], self.jobs)
        kept = read_notes(path)
        self.results = {key: kept[key] for key, _ in self.drawn}
        return True

    def _is_open(self, key: str, kept: dict[str, str]) -> bool:
        return key not in kept or (self.is_again and kept[key] != "killed" and key not in self.equivalent)


def describe(results: dict[str, str], equivalent: dict[str, str], n_all: int) -> str:
    """The section of docs/reliability.md."""
    lines = ["| room | mutants | killed | equivalent | survived | score |", "| --- | --: | --: | --: | --: | --: |"]
    survivors = [key for key, outcome in results.items() if outcome != "killed"]
    for room in (*ROOMS, ""):
        n_own = sum(key.startswith(room) for key in results)
        n_alike = sum(key.startswith(room) and key in equivalent for key in survivors)
        n_left = sum(key.startswith(room) and key not in equivalent for key in survivors)
        score = (n_own - n_alike - n_left) / max(1, n_own - n_alike)
        numbers = (n_own, n_own - n_alike - n_left, n_alike, n_left)
        lines.append(f"| {room or 'all'} | {' | '.join(map(str, numbers))} | {score:.1%} |")
    lines += ["", f"{len(results):,} of {n_all:,} mutants, drawn at random. Score: killed over all but equivalent.", ""]
    lines += ["| not killed | why |", "| --- | --- |"]
    for key in survivors:
        lines.append(f"| `{key.replace('|', chr(92) + '|')}` | {equivalent.get(key, 'survived: no test sees it')} |")
    return "\n".join(lines)


def main() -> None:
    """Draw, try, tell and, if asked to, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="each draws a sample of its own")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="CPU seconds of the tests that meet one mutant")
    parser.add_argument("--again", action="store_true", help="try survivors again")
    parser.add_argument("--write", action="store_true", help="record the score in docs/reliability.md")
    asked = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    listed = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["equivalent"]
    equivalent = {key: one["reason"] for one in listed for key in one["mutants"]}
    drawn, n_all = sample(asked.count, asked.seeds)
    trial = Trial(drawn, equivalent, is_again=asked.again, jobs=asked.jobs, budget_s=asked.budget)
    pytest.main([*OPTIONS, *TESTS], plugins=[trial])
    section = describe(trial.results, equivalent, n_all)
    print(section)
    if asked.write and trial.results:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{section}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
