"""Finds calls that reach a file by its path, which a link of a program could redirect anywhere."""

import ast
from collections.abc import Iterator
from pathlib import Path

# Methods of pathlib.Path. Their arguments decide for names that other classes have too.
_OF_A_PATH = frozenset(
    {
        *("chmod", "exists", "expanduser", "glob", "group", "hardlink_to", "is_dir", "is_fifo", "is_file", "is_mount"),
        *("is_socket", "is_symlink", "iterdir", "lchmod", "lstat", "mkdir", "owner", "read_bytes", "rglob"),
        *("readlink", "resolve", "rmdir", "samefile", "symlink_to", "touch", "write_bytes", "write_text"),
    }
)
_OF_OS = frozenset(
    {
        *("access", "chmod", "chown", "fwalk", "lchown", "link", "listdir", "lstat", "makedirs", "mkdir", "mkfifo"),
        *("mknod", "open", "readlink", "remove", "removedirs", "removexattr", "rename", "renames", "replace", "rmdir"),
        *("scandir", "setxattr", "stat", "statvfs", "symlink", "truncate", "unlink", "utime", "walk"),
    }
)
_OF_OS_PATH = frozenset({"exists", "getmtime", "getsize", "isdir", "isfile", "islink", "lexists", "realpath"})
_BY_DESCRIPTOR = frozenset({"dir_fd", "src_dir_fd", "dst_dir_fd"})
_FOLLOWING = frozenset({"access", "chmod", "chown", "stat", "utime"})  # a link, also in an open folder
_ENTRIES = frozenset({"entry", "each"})  # the names that entries of an open folder have


def plain_calls(path: Path) -> Iterator[tuple[int, str]]:
    """Return the lines of a module with such calls, and the called functions."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call) and (called := _called(node)):
            yield node.lineno, called


def _called(call: ast.Call) -> str:
    """Return the called function if it reaches a file by its path."""
    words = {keyword.arg for keyword in call.keywords}
    match call.func:
        case ast.Name(id="open"):
            return "open"
        case ast.Attribute(value=ast.Name(id="shutil"), attr=name):
            return f"shutil.{name}"
        case ast.Attribute(value=ast.Name(id="tempfile"), attr=name):
            return f"tempfile.{name}"
        case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in _OF_OS:
            is_led = name in _FOLLOWING and "follow_symlinks" not in words
            is_confined = words & _BY_DESCRIPTOR and not is_led
            return "" if is_confined or _is_descriptor(call) else f"os.{name}"
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="os"), attr="path"), attr=name) if name in _OF_OS_PATH:
            return f"os.path.{name}"
        case ast.Attribute(value=ast.Name(id="os")):
            return ""
        case ast.Attribute(value=ast.Name(id=entry), attr="is_dir" | "stat") if entry in _ENTRIES:
            return ""
        case ast.Attribute(attr=name) if name in _OF_A_PATH:
            return f"Path.{name}"
        case ast.Attribute(attr="open") if call.args and _is_text(call.args[0]):
            return "Path.open"
        case ast.Attribute(attr="unlink" | "stat" as name) if not call.args:
            return f"Path.{name}"
        case ast.Attribute(attr="rename" | "replace" as name) if len(call.args) == 1:
            return f"Path.{name}"
        case ast.Attribute(attr="read_text") if "limit_bytes" not in words:
            return "Path.read_text"
    return ""


def _is_descriptor(call: ast.Call) -> bool:
    match call.args[:1]:
        case [ast.Name(id="descriptor") | ast.Call(func=ast.Attribute(attr="fileno"))]:
            return True
    return False


def _is_text(argument: ast.expr) -> bool:
    return isinstance(argument, ast.Constant) and isinstance(argument.value, str)
