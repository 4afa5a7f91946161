"""Everything that the commands load, for the process from which those tried are forked."""

import importlib
import pkgutil
from contextlib import suppress

import campaigns.kills_preloaded
import campaigns.options
import ettr

LAZY = ("scipy.optimize", "scipy.stats", "scipy.special", "plotly", "jinja2", "torch.distributed")
"""What functions import when they are called."""

NEVER = "ettr.adapters"
"""What no command loads: frameworks of training, which take seconds."""

modules = [module.name for module in pkgutil.walk_packages(ettr.__path__, "ettr.")]
for name in (*modules, *LAZY):
    if not name.startswith(NEVER):
        with suppress(ImportError):  # PyTorch, Spark and others may be missing
            importlib.import_module(name)

LOADED = (campaigns.kills_preloaded, campaigns.options, ettr)
