"""The core's API: FastAPI on a Unix socket. CLI and SDK use nothing else."""
