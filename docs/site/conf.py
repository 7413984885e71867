"""Sphinx's configuration of the documentation site: `make docs` writes it to build/docs/html.

Labels of Ansible's and other collections' documentation become links by their names, so that no build asks a network.
"""

from __future__ import annotations

import re
import typing as t

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

project = "dgxspark.cluster"
copyright = "dgxspark.cluster contributors"
html_title = "dgxspark.cluster"
html_short_title = "dgxspark.cluster"
extensions = ["sphinx_antsibull_ext"]
html_theme = "sphinx_ansible_theme"
html_theme_options = {"topbar_links": {}}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_use_modindex = False
html_use_index = False
html_copy_source = False
html_show_sphinx = False
pygments_style = "ansible"
highlight_language = "YAML+Jinja"
default_role = "any"
nitpicky = True

ANSIBLE = "https://docs.ansible.com/projects/ansible/latest"
PAGES = {
    "common_return_values": "reference_appendices/common_return_values.html",
    "ansible_configuration_settings": "reference_appendices/config.html",
    "action_plugins": "plugins/action.html",
    "callback_plugins": "plugins/callback.html",
}
ELSEWHERE = re.compile(r"ansible_collections\.(?!dgxspark\.)(\w+)\.(\w+)\.(\w+?)(?:__.*)?$")


def elsewhere(_app: Sphinx, _env: BuildEnvironment, node: pending_xref, content: nodes.Node) -> nodes.Node | None:
    """Link a label that Ansible's site has; None leaves it undefined, which fails the build."""
    target = node.get("reftarget", "")
    found = ELSEWHERE.match(target)
    if node.get("reftype") == "envvar" and target.startswith("ANSIBLE_"):
        return nodes.reference(
            "",
            "",
            content,
            internal=False,
            refuri=f"{ANSIBLE}/{PAGES['ansible_configuration_settings']}#envvar-{target}",
        )
    page = PAGES.get(target) or (found and "collections/{}/{}/{}.html".format(*found.groups()))
    return nodes.reference("", "", content, internal=False, refuri=f"{ANSIBLE}/{page}") if page else None


def start_here(_app: Sphinx, page: str, _template: str, context: dict[str, t.Any], _tree: object) -> None:
    """Link the first evening in each page's bar: the theme takes an address as it is, also from a page in a folder."""
    context["theme_documentation_home_url"] = context["pathto"]("docsite/guide_first_evening") or "#"


def setup(app: Sphinx) -> None:
    """Register the resolver and the link."""
    app.connect("missing-reference", elsewhere)
    app.connect("html-page-context", start_here)
