"""Make short Python processes cheaper: keep what they compile, and collect garbage seldom.

Ansible compiles its collections and modules again in every process, on emulated cores for seconds. Python imports this file as it
starts: on the lab's nodes, and in the environments that tools/setup.py makes for tests. What is kept is named by a digest of its
source, so a changed source is compiled.
"""

import _imp
import builtins
import gc
import marshal
import os
import sys

PLACE = os.path.join(
    "/var/cache" if sys.prefix == sys.base_prefix else sys.prefix, "compiled", sys.implementation.cache_tag
)
_compile = builtins.compile


def kept_compile(source, filename, mode, flags=0, dont_inherit=False, optimize=-1, **more):
    """Compile as `compile` does, and whole modules, as import systems compile them, once."""
    text = isinstance(source, (str, bytes)) and isinstance(filename, str)
    if mode != "exec" or flags or not dont_inherit or optimize != -1 or more or not text:
        return _compile(source, filename, mode, flags, dont_inherit, optimize, **more)
    data = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
    path = os.path.join(PLACE, f"{len(data):x}-{_imp.source_hash(0, data).hex()}")
    try:
        with open(path, "rb") as file:
            code = marshal.loads(file.read())
    except (OSError, ValueError, EOFError, TypeError):
        code = _compile(source, filename, mode, flags, dont_inherit, optimize)
        _keep(path, marshal.dumps(code))
    else:
        _imp._fix_co_filename(code, filename)
    return code


def _keep(path, code):
    try:
        os.makedirs(PLACE, exist_ok=True)
        with open(f"{path}.{os.getpid()}", "wb") as file:
            file.write(code)
        os.replace(file.name, path)
    except OSError:  # another user's process, or a full disk
        pass


builtins.compile = kept_compile
gc.set_threshold(20_000, 20, 20)
