"""Soft trees of a study whose parameters are chosen within the training rows of each fold."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sklearn.base import clone

from sstorch.data import Schema, SurvivalData
from sstorch.data.wording import nearest_text
from sstorch.estimators import SoftSurvivalTree, SoftSurvivalTreeCV
from sstorch.estimators.grid import SEARCHED
from sstorch.evaluation.study_model import Fit, StudyModel
from sstorch.exceptions import ConfigError
from sstorch.nn import make_family
from sstorch.optim.fingerprint import Fingerprint, fingerprint


class SoftTreeCVModel(StudyModel):
    """Soft survival trees whose parameters are chosen within the training rows of each fold.

    Args:
        name: by which the results are known.
        estimator: the search; the device is the study's.
    """

    def __init__(self, name: str, estimator: SoftSurvivalTreeCV) -> None:
        super().__init__(name)
        self.estimator = estimator

    @property
    def depth(self) -> None:
        """None: it is chosen; the facts of the task have it for each fold."""
        return None

    def check(self) -> None:
        """Check every candidate."""
        self.estimator.candidates()

    def settings(self) -> Fingerprint:
        """Everything that is compared and how, and the trainer, but for the device."""
        search = clone(self.estimator).set_params(device="cpu", verbose=0)
        found = search.candidates()
        compared = {name: list(dict.fromkeys(getattr(own, name) for own in found)) for name in SEARCHED}
        checked = SoftSurvivalTree(**found[0].parameters, **search.shared()).settings()
        shared = {name: value for name, value in checked.facts().items() if name not in SEARCHED}
        how = {name: getattr(search, name) for name in ("cv", "scoring", "search", "one_standard_error")}
        return {
            **fingerprint(compared | {"leaf": [make_family(leaf) for leaf in compared["leaf"]]}, "compared"),
            **fingerprint(shared, "tree"),
            **fingerprint(checked.trainer, "trainer"),
            **fingerprint(how, "search"),
            "tree.prediction": search.prediction,
        }

    def versions(self) -> dict[str, str]:
        """That of torch."""
        return {"torch": importlib.metadata.version("torch")}

    def fits(self, splits: Sequence[SurvivalData], schema: Schema, device: str) -> Iterator[Fit]:
        """Search and train one fold after the other."""
        for fold, train in enumerate(splits):
            search = clone(self.estimator).set_params(device=device).fit_data(train, schema)
            row = search.cv_results_.astype(object).iloc[search.best_index_]
            facts = {name: row[name] for name in SEARCHED}
            facts |= {"score": search.best_score_, "n_candidates": len(search.cv_results_)}
            yield Fit(fold, 0, True, search.tree_.objective_, search, facts)


def soft_search_models(
    estimator: SoftSurvivalTree, entries: Mapping[str, Mapping[str, Any]]
) -> list[StudyModel]:
    """Searches for soft trees by name.

    Args:
        estimator: parameters that all candidates have.
        entries: for each name parameters of :class:`~sstorch.SoftSurvivalTreeCV`; a list is compared.

    Raises:
        ConfigError: there is no such parameter.
    """
    names = list(SoftSurvivalTreeCV().get_params(deep=False))
    given = {name: value for name, value in estimator.get_params(deep=False).items() if name in names}
    models: list[StudyModel] = []
    for name, entry in entries.items():
        for parameter in set(entry) - set(names):
            hint = nearest_text(parameter, names)
            raise ConfigError(f"study.searches.{name}: a search has no parameter {parameter!r}.{hint}")
        # What is searched has the values of the search, unless the entry says otherwise.
        shared = {key: value for key, value in given.items() if key not in SEARCHED}
        models.append(SoftTreeCVModel(name, SoftSurvivalTreeCV(**(shared | dict(entry)))))
    return models
