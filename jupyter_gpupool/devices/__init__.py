"""GPUs as they are: real through NVML or simulated, how they are shared, who is on them, who owns them."""
