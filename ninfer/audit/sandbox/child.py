"""The program of the sandboxed process: limits first, then a watch on what it does, then the code.

Started as `python -I child.py LIMITS unittest|compile FILE...` or `... tool PROGRAM...`, with the
folder of the files as working directory; it imports nothing of the package. LIMITS are CPU seconds,
bytes of memory and bytes of a file, with commas.
"""

import os
import resource
import sys
import unittest

# What code of an answer has no business with. The watch catches mistakes of a model; the limits and
# the namespace of the network are what holds against more.
FORBIDDEN = (
    *("socket.", "subprocess.", "ctypes.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn"),
    *("os.system", "os.kill", "os.killpg", "pty.", "signal.pthread_kill", "webbrowser.", "ftplib."),
    *("smtplib.", "http.client.", "urllib.Request", "telnetlib.", "shutil.chown", "os.chown"),
)
# Events whose first argument is a path that must lie in the folder.
IN_FOLDER = (
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink"),
    *("os.truncate", "os.listdir", "os.scandir", "os.chdir", "shutil.rmtree", "os.utime"),
)
READABLE = ("/dev/null", "/dev/urandom", "/dev/zero")


def limit(seconds: int, memory: int, file_bytes: int) -> None:
    """Bound processor time, memory, files and processes of this process."""
    for name, value in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        # The hard end of processor time is later, so that the signal tells which limit it was.
        resource.setrlimit(name, (value, value + (name == resource.RLIMIT_CPU)))


def watch(folder: str) -> None:
    """Refuse what code may not do, from here on for good."""
    roots = tuple(
        os.path.realpath(path) + os.sep
        for path in {folder, sys.prefix, sys.base_prefix, os.path.dirname(os.__file__)}
    )

    def inside(path: object, allowed: tuple[str, ...]) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return True  # an open descriptor
        real = os.path.realpath(os.fsdecode(path))
        return real in READABLE or (real + os.sep).startswith(allowed)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        refused = event.startswith(FORBIDDEN)
        if event == "open":
            path, mode, flags = arguments
            writes = any(mark in str(mode) for mark in "wax+") or (
                isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            )
            refused = not inside(path, roots[:1] if writes else roots)
        elif event in IN_FOLDER and arguments:
            reads = event in ("os.listdir", "os.scandir")
            refused = not inside(arguments[0], roots if reads else roots[:1])
        elif event == "import":
            refused = str(arguments[0]).split(".")[0] in ("ctypes", "_ctypes", "_posixsubprocess")
        if refused:
            raise PermissionError(f"the sandbox allows no {event} {arguments[:1]!r}")

    roots = (os.path.realpath(folder) + os.sep, *roots)
    sys.addaudithook(hook)


def compile_files(names: list[str]) -> int:
    """Compile each file; the first error ends it."""
    for name in names:
        with open(name, encoding="utf-8") as file:
            try:
                compile(file.read(), name, "exec", dont_inherit=True)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                sys.stdout.write(f"{name}: {type(error).__name__}: {error}\n")
                return 1
    return 0


def run_tests(names: list[str]) -> int:
    """Run the tests of modules; a module without one is an error."""
    sys.path.insert(0, os.getcwd())
    loader, runner = unittest.TestLoader(), unittest.TextTestRunner(sys.stdout, verbosity=0)
    for name in names:
        suite = loader.loadTestsFromName(name.removesuffix(".py").replace("/", "."))
        if suite.countTestCases() == 0:
            sys.stdout.write(f"Error: {name} has no test\n")
            return 1
        if not runner.run(suite).wasSuccessful():
            return 1
    return 0


def main() -> int:
    """Run what the command line says."""
    limits, action, *names = sys.argv[1:]
    seconds, memory, file_bytes = map(int, limits.split(","))
    limit(seconds, memory, file_bytes)
    if action == "tool":
        os.execvp(names[0], names)
    watch(os.getcwd())
    return compile_files(names) if action == "compile" else run_tests(names)


if __name__ == "__main__":
    sys.exit(main())
