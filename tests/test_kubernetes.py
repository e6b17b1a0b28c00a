"""The manifest in the chapter about workers is one that Kubernetes takes, and starts the workers as it says."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
PAGE = Path(__file__).parents[1] / "docs" / "workers.md"


def manifests() -> list[Any]:
    [block] = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return list(yaml.safe_load_all(block))


def test_kubernetes_takes_it() -> None:
    validator = pytest.importorskip("kubernetes_validate")
    for manifest in manifests():
        validator.validate(manifest, validator.latest_version(), strict=True)


def test_each_pod_has_a_task_of_its_own_among_the_names_of_the_pods() -> None:
    service, job = manifests()
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    [script] = container["args"]
    shown = script.replace("exec python train.py", 'printf %s "$TF_CONFIG"')
    count = job["spec"]["completions"]
    for index in range(count):
        done = subprocess.run([*container["command"], shown], env={"JOB_COMPLETION_INDEX": str(index)},
                              capture_output=True, text=True, check=True)
        config = json.loads(done.stdout)
        assert config["task"] == {"type": "worker", "index": index}
        assert config["cluster"] == {"worker": [f"train-{number}.train:12345" for number in range(count)]}
