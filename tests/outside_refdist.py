"""Run by `make suite-wheel` with the interpreter that has the suite installed without refdist."""

import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import refdist_conformance
from refdist_conformance import new

checkout = Path(sys.argv[1])
place = Path(refdist_conformance.__file__).parent
command = Path(sys.executable).with_name("refdist-conformance")
assert "site-packages" in place.parts, place
assert not [name for name in ("refdist", "numpy", "greenlet", "hypothesis") if importlib.util.find_spec(name)]
for path in sorted(place.glob("*.py")):
    if path.stem not in ("__init__", "__main__"):
        importlib.import_module(f"refdist_conformance.{path.stem}")
# What is beside the modules of the suite, and in its folders of data, is the same there.
files = [path.relative_to(checkout / "conformance")
         for folder in ("", "promises", "scaffolds", "spec", "trainers", "trainers/testees")
         for path in (checkout / "conformance" / folder).iterdir()
         if path.is_file() and path.name not in ("pyproject.toml", "LICENSE")]
for path in files:
    assert (place / path).read_bytes() == (checkout / "conformance" / path).read_bytes(), path

tried = []
for name, language in new.LANGUAGES.items():
    runs = {"python": sys.executable}.get(name) or shutil.which(language.needs.split()[0].lower())
    if not runs or language.prepare:
        continue
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([command, "new", "--language", name, folder], check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run([command, "--adapter", f"testee:{runs} {language.file}", "--clause", "all_reduce"],
                              cwd=folder, capture_output=True, text=True)
        passed = re.search(r"^(\d+) passed, \d+ skipped", done.stdout, re.MULTILINE)
        assert done.returncode == 0 and passed and int(passed[1]) >= 10, done.stdout + done.stderr
        tried.append(f"{passed[1]} cases in {name}")
assert tried
# Trainers are told what to do, and judged where there is NumPy.
with tempfile.TemporaryDirectory() as folder:
    subprocess.run([command, "trainers", "--write-jobs", "jobs.jsonl", "--write-testee", "."], cwd=folder, check=True)
    jobs = (Path(folder) / "jobs.jsonl").read_text(encoding="utf-8").splitlines()
    assert jobs and (Path(folder) / "testee.py").exists() and (Path(folder) / "trainer_jobs.py").exists()
    done = subprocess.run([command, "trainers", "--command", f"{sys.executable} testee.py"], cwd=folder,
                          capture_output=True, text=True)
    assert done.returncode == 4 and "run `pip install numpy`" in done.stderr, done.stdout + done.stderr
print(f"{len(files)} files of the suite are there without refdist; testees to begin with pass {', '.join(tried)}; "
      f"{len(jobs)} jobs for trainers are written")
