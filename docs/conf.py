"""Configuration of the documentation site; `make docs` builds it, offline."""

import logging
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pages

import multispin_env

project = "Multi-SPIN Gym"
author = copyright = "The Multi-SPIN Gym developers"
release = multispin_env.__version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "pages",
]
exclude_patterns = ["Thumbs.db", ".DS_Store"]

html_theme = "furo"
html_title = project
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"  # of pages.py: browsers show it without a script or a network

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath", "substitution"]
myst_heading_anchors = 3
myst_substitutions = {
    "bibtex": pages.bibtex(),
    "scenario_comparison": pages.scenario_comparison(),
    **{f"fields_{name}": table for name, table in pages.scenario_fields().items()},
}

nb_execution_mode = "force"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "warn"
os.environ["OMP_NUM_THREADS"] = "1"  # for small networks threads only wait for each other
os.environ["JUPYTER_PATH"] = str(Path(__file__).parent / "jupyter")  # the kernel of the notebooks
logging.getLogger("traitlets").setLevel(
    logging.WARNING
)  # a style of furo's shows all loggers' news

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
ALIASES = ("ArrayLike", "DraftPolicyLike", "Floats", "Integers", "Observation", "Overrides")
ALIASES += ("Reward", "ScenarioLike")
autodoc_type_aliases = {name: name for name in ALIASES}
maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

# Types of other projects: resolving them would take their inventories, from the network.
nitpick_ignore = [("py:exc", "DependencyNotInstalled"), ("py:exc", "ResetNeeded")]
nitpick_ignore += [
    ("py:class", "multispin_env.parallel.Result"),
    ("py:class", "multispin_env.model.kernels.compiling._Function"),
    ("py:mod", "multiprocessing"),
    *(("py:class", name) for name in ALIASES),
]
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(collections|gym|gymnasium|np|numpy|optuna|pathlib|spaces|stable_baselines3|torch)\..*",
    ),
]
