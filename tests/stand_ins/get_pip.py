"""Stand-in for the get-pip.py that `ansible-test --venv/--local` downloads, where GitHub cannot be reached.

Imitated: get-pip.py 24.2 and 25.2 as ansible-test calls them: pip installs the packages named, with the interpreter's own pip.
Not imitated: the pip, setuptools and wheel that it carries. ansible-test keeps it as ~/.ansible/test/cache/get_pip_<version>.py;
tools/sanity.py puts it there.
"""

import ensurepip
import os
import runpy
import sys

ensurepip.bootstrap()
os.environ.pop("PIP_CONFIG_FILE", None)  # ensurepip points it at /dev/null, which would lose the machine's own index
sys.argv = ["pip", "install", *[a for a in sys.argv[1:] if a not in ("--no-setuptools", "--no-wheel")]]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
