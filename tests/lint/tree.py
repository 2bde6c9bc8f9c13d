"""What the lints share: the project's own files, and how findings are told."""
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["server", "handlers", "storage", "schemas", "deploy", "tests", ".ci"]
NOT_OURS = {"node_modules", "__pycache__", "corpus"}


def sources(*suffixes, folders=FOLDERS):
    """(path below the root, text) of each file with one of the suffixes ("" for scripts without one)."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in suffixes or not path.is_file() or NOT_OURS & set(path.parts):
                continue
            text = path.read_text(errors="replace")
            if path.suffix == "" and not text.startswith("#!"):
                continue
            yield path.relative_to(ROOT), text


def lint(findings):
    """Prints the findings; the exit code."""
    count = 0
    for finding in findings:
        print(finding)
        count += 1
    return 1 if count else 0
