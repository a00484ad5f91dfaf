"""Files that other interpreters find under a name of their own, on the path ``GPUPOOL_HOME/portable``."""
