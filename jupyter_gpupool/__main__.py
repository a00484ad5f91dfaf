"""``python -m jupyter_gpupool …`` is ``jupyter gpupool …``."""

from .app import main

raise SystemExit(main())
