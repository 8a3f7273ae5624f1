"""Sphinx configuration of the documentation: `bash scripts/docs` builds it into site/."""

import importlib.metadata
import re

project = "sstorch"
release = importlib.metadata.version("sstorch")
copyright = "the sstorch developers, Apache-2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
templates_path: list[str] = []
exclude_patterns: list[str] = []

# Links within a page, [text](#heading), by the names that repositories show.
myst_heading_anchors = 3

# A class is documented by its docstring, its methods in the order of the source.
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
# Docstrings say `x` for code where RST would want a double quotation mark.
default_role = "code"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# The theme has its styles, scripts and icons in the site itself, and takes the fonts of the reader's system:
# pages need no network.
html_theme = "furo"
html_title = f"sstorch {release}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_js_files = ["access.js"]
html_copy_source = False
html_show_sourcelink = False

_CODE = re.compile(r"(``.*?``|`[^`]*`)")
_FIELD = re.compile(r"\s*(\* |:[^:`]+:(?=\s)|\.\. |>>> |\.\.\. )?")
_MARK = re.compile(r"(?<![*\\])\*(?![*])|\|")
_UNDERSCORE = re.compile(r"(?<=\w)_(?!\w)")
_FILE_LINK = re.compile(r"\[([^]\[]+)\]\((\.\./experiments/[^)\s#]+)[^)\s]*\)")
# Written by scikit-learn, with links into its own documentation.
_ROUTING = re.compile(r"set_\w+_request|get_metadata_routing")


def _plain_text(app, what, name, obj, options, lines):
    """Make *batch_shape and lambda_ in docstrings what they are, words and no markup of RST."""
    for number, line in enumerate(lines):
        start = _FIELD.match(line).end()
        if line[:start].strip() in ("..", ">>>", "..."):
            continue
        parts = _CODE.split(line[start:])
        parts[::2] = [_UNDERSCORE.sub(r"\\_", _MARK.sub(r"\\\g<0>", part)) for part in parts[::2]]
        head = line[:start].replace("_:", r"\_:") if line.startswith(":ivar ") else line[:start]
        lines[number] = head + "".join(parts)


def _skip_routing(app, what, name, obj, skip, options):
    """Leave out the methods that scikit-learn adds for metadata routing."""
    return True if _ROUTING.fullmatch(name) else None


def _adapt_source(app, docname, source):
    """Copy linked pages of experiments into the site as files; drop the blank last line of examples."""
    source[0] = _FILE_LINK.sub(r"{download}`\1 <\2>`", source[0]).replace("\n\n```\n", "\n```\n")


def setup(app):
    """Connect the hooks; that of docstrings after napoleon, which makes the fields."""
    app.connect("autodoc-process-docstring", _plain_text, priority=600)
    app.connect("autodoc-skip-member", _skip_routing)
    app.connect("source-read", _adapt_source)
