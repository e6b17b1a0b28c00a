"""What a run of the tests says at its top."""

from __future__ import annotations

from gpu_world import why_no_gpu


def pytest_report_header() -> str:
    reason = why_no_gpu()
    return f"GPU tests: on a stand-in for CuPy; no GPU code runs ({reason})" if reason else "GPU tests: on a GPU too"
