"""What an interactive Python of a pool session runs first (``PYTHONSTARTUP``): IPython gets the magics.

Owns: that `%gpupool` is there without being loaded. Never: anything in another Python, a name in the user's
namespace, or an error where the package is not installed.
"""

try:
    get_ipython().extension_manager.load_extension("jupyter_gpupool")  # type: ignore[name-defined]
except (NameError, ImportError):
    pass
