"""Unmodified programs that read a mounted dataset, compared with the same folder (python -m tests.e2e.programs)."""
