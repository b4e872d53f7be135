"""Circles of imports: files of one crate of which none can be understood before the others."""
import pathlib
import re

FILES_MAX = 5
# These name no file that the code needs: comments, strings, characters, visibilities, tests.
SILENT = re.compile(
    r'//[^\n]*|/\*.*?\*/|r#".*?"#|"(?:\\.|[^"\\])*"|\'(?:\\.[^\']*|[^\'\\])\'|pub\([^)]*\)|'
    r"#\[cfg\(test\)\]\s*(?:mod \w+ \{.*?^\}|(?:pub(?:\([^)]*\))? )?use [^;]*;)", re.DOTALL | re.MULTILINE)


def leaves(tree):
    """The paths of a `use`: of `a::{b, c::d as e}` they are a::b and a::c::d."""
    prefixes, path, found = [[]], [], []
    for word in re.findall(r"\w+|[{},*]", re.sub(r"\bas \w+", "", tree) + ","):
        if word == "{":
            prefixes, path = prefixes + [prefixes[-1] + path], []
        elif word in ",}":
            found, path = found + [prefixes[-1] + path] * bool(path), []
            prefixes = prefixes[: len(prefixes) - (word == "}")]
        else:
            path.append(word)
    return found


def named(here, path, files, root):
    """The file that `path` leads to from the file `here`. An export of the root leads to its own file."""
    if path[0] not in ("crate", "self", "super") and here + (path[0],) not in files:
        return None
    at = () if path[0] == "crate" else here[: len(here) - path.count("super")]
    path = at + tuple(word for word in path if word not in ("crate", "self", "super"))
    found = next(path[:length] for length in range(len(path), -1, -1) if path[:length] in files)
    return found or root.get("".join(path[:1]))


def circles(source):
    """The circles of the crate with these sources."""
    paths = {file.relative_to(source).with_suffix("").parts: file for file in source.rglob("*.rs")}
    files = {parts[: len(parts) - (parts[-1] in ("lib", "main", "mod"))]: SILENT.sub(" ", file.read_text())
             for parts, file in paths.items() if "tests" not in parts}
    root, needs = {}, {}
    for here, text in sorted(files.items()):
        found = [path for tree in re.findall(r"\buse ([^;]*);", text) for path in leaves(tree)]
        found += [path.split("::") for path in re.findall(r"\b\w+(?:::\w+)+", re.sub(r"\buse [^;]*;", "", text))]
        found = [(path[-1], named(here, path, files, root)) for path in found]
        root.update(found if here == () else [])
        needs[here] = {file for _, file in found if file} - {here}
    below = {}
    for file in needs:
        seen, new = set(), {file}
        while new:
            new = set().union(*(needs[it] for it in new)) - seen
            seen |= new
        below[file] = seen
    return {frozenset(it for it in below[file] if file in below[it]) for file in needs} - {frozenset()}


def wrong(crates):
    """The circles that are too large."""
    found = [(crate.name, circle) for crate in sorted(pathlib.Path(crates).iterdir()) for circle in circles(crate / "src")]
    return ["%s: these %d files import each other in a circle: %s" % (crate, len(circle), ", ".join(sorted(map("::".join, circle))))
            for crate, circle in found if len(circle) > FILES_MAX]
