"""What mkdocs does beyond Markdown: notebooks and verbs become pages, and names of pages become links.

mkdocs.yml names this file twice: as hooks of mkdocs, and as an extension of griffe, which reads the docstrings.
"""

import json
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File

_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_NAMED_PAGE = re.compile(r"`docs/([a-z_]+)\.md`")
_VERBS = "<!-- verbs -->"


class DocstringsAsPages(griffe.Extension):
    """Reads ``Example:`` as griffe reads ``Examples:``, and links pages that docstrings name."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring before it is parsed."""
        if obj.docstring:
            text = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r"\bdocs/([a-z_]+)\.md\b", r"[docs/\1.md](../\1.md)", text)


def on_files(files: Any, config: Any) -> Any:
    """Add a page for each notebook; the notebook itself stays beside it to be downloaded."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            page = render_notebook(Path(file.abs_src_path))
            files.append(File.generated(config, file.src_uri.replace(".ipynb", ".md"), content=page))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Link pages that are named as `docs/NAME.md`, outside of code, and fill in the verbs."""
    depth = "../" * page.file.src_uri.count("/")
    parts = _FENCE.split(markdown)
    fences = _FENCE.findall(markdown)
    linked = [_link_pages(part, Path(config.docs_dir), depth) for part in parts]
    text = "".join(part + fence for part, fence in zip(linked, [*fences, ""], strict=True))
    return text.replace(_VERBS, _list_verbs()) if _VERBS in text else text


def _link_pages(text: str, docs: Path, depth: str) -> str:
    def link(match: re.Match[str]) -> str:
        path = docs / f"{match[1]}.md"
        title = path.read_text(encoding="utf-8").split("\n", 1)[0].strip("# ") if path.is_file() else match[0]
        return f"[{title}]({depth}{path.name})"

    return re.sub(r"\]\(((?:[a-z_]+/)*[a-z_]+)\.ipynb\)", r"](\1.md)", _NAMED_PAGE.sub(link, text))


def render_notebook(path: Path) -> str:
    """Markdown of an executed notebook, outputs and pictures included."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts += [f"```python\n{source}\n```", *map(_render_output, cell["outputs"])]
    first, *others = parts
    note = f"*This page is a notebook, shown as it ran: [download it]({path.name}).*"
    return "\n\n".join([first, note, *others]) + "\n"


def _render_output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return _show_text("".join(output["text"]))
    data = output["data"]
    if "image/png" in data:
        alt = output["metadata"].get("alt", "Figure")
        return f'<img class="notebook-figure" alt="{alt}" src="data:image/png;base64,{data["image/png"].strip()}">'
    if "text/html" in data:
        page = re.sub(r"\n\s*", " ", "".join(data["text/html"]))
        return f'<div class="notebook-output">{page}</div>'
    return _show_text("".join(data["text/plain"]))


def _show_text(text: str) -> str:
    return f"``` {{ .text .no-copy .wrapped }}\n{text.rstrip()}\n```"


def _list_verbs() -> str:
    """Every verb with its options, as the code has them."""
    import typer

    from ruler.cli.app import make_app

    top: Any = typer.main.get_command(make_app())
    return "\n\n".join(_describe_verb(f"ruler {name}", verb) for name, verb in top.commands.items() if not verb.hidden)


def _describe_verb(name: str, verb: Any) -> str:
    if hasattr(verb, "commands"):
        inner = [_describe_verb(f"{name} {word}", one) for word, one in verb.commands.items()]
        return "\n\n".join(inner)
    arguments = [one for one in verb.params if one.param_type_name == "argument"]
    options = [one for one in verb.params if one.param_type_name == "option" and one.name != "help"]
    words = " ".join([name, *(one.name.upper() if one.required else f"[{one.name.upper()}]" for one in arguments)])
    parts = [f"## {name}", _as_plain(verb.help), f"```text\n{words} [OPTIONS]\n```"]
    if arguments or options:
        rows = ["| word | meaning |", "|---|---|"]
        rows += [f"| `{one.name.upper()}` | {_as_cell(one.help)} |" for one in arguments]
        rows += [f"| {', '.join(f'`{word}`' for word in one.opts)} | {_as_cell(one.help)} |" for one in options]
        parts.append("\n".join(rows))
    if verb.epilog:
        parts.append(_show_example(verb.epilog))
    return "\n\n".join(parts)


def _as_plain(text: str | None) -> str:
    """Help as Markdown that shows it to the letter, but for names of pages, which become links."""
    shown = re.sub(r"([*_<|])", r"\\\1", (text or "").replace("\b", "").replace("\f", ""))
    return re.sub(r"docs/([a-z\\_]+)\.md", lambda found: f"[{found[0]}]({found[1]}.md)".replace("\\_", "_"), shown)


def _as_cell(text: str | None) -> str:
    return " ".join(_as_plain(text).split())


def _show_example(epilog: str) -> str:
    lines = epilog.removeprefix("Example: ").split(", or: ")
    return "Example:\n\n```sh\n" + "\n".join(lines) + "\n```"
