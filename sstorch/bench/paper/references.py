"""The references that a draft cites."""

from __future__ import annotations

from sstorch.document import Block, Bullets, Paragraph, Section

# By what stands in the text where it is cited.
_REFERENCES = {
    "Andersen": (
        "Andersen PK, Gill RD (1982). Cox's regression model for counting processes: a large sample study. "
        "Annals of Statistics 10, 1100-1120."
    ),
    "Antolini": (
        "Antolini L, Boracchi P, Biganzoli E (2005). A time-dependent discrimination index for survival "
        "data. Statistics in Medicine 24, 3927-3944."
    ),
    "Austin et al., 2020": (
        "Austin PC, Harrell FE, van Klaveren D (2020). Graphical calibration curves and the integrated "
        "calibration index (ICI) for survival models. Statistics in Medicine 39, 2714-2742."
    ),
    "Brookmeyer": (
        "Brookmeyer R, Crowley J (1982). A confidence interval for the median survival time. Biometrics "
        "38, 29-41."
    ),
    "TRIPOD+AI": (
        "Collins GS, Moons KGM, Dhiman P, et al. (2024). TRIPOD+AI statement: updated guidance for "
        "reporting clinical prediction models that use regression or machine learning methods. BMJ 385, "
        "e078378."
    ),
    "Graf": (
        "Graf E, Schmoor C, Sauerbrei W, Schumacher M (1999). Assessment and comparison of prognostic "
        "classification schemes for survival data. Statistics in Medicine 18, 2529-2545."
    ),
    "Lin and Wei": (
        "Lin DY, Wei LJ (1989). The robust inference for the Cox proportional hazards model. Journal of the "
        "American Statistical Association 84, 1074-1078."
    ),
    "Nadeau": (
        "Nadeau C, Bengio Y (2003). Inference for the generalization error. Machine Learning 52, 239-281."
    ),
    "Royston": (
        "Royston P, Parmar MKB (2002). Flexible parametric proportional-hazards and proportional-odds "
        "models for censored survival data. Statistics in Medicine 21, 2175-2197."
    ),
    "Schemper": (
        "Schemper M, Smith TL (1996). A note on quantifying follow-up in studies of failure time. "
        "Controlled Clinical Trials 17, 343-346."
    ),
    "Uno": (
        "Uno H, Cai T, Pencina MJ, D'Agostino RB, Wei LJ (2011). On the C-statistics for evaluating "
        "overall adequacy of risk prediction procedures with censored survival data. Statistics in "
        "Medicine 30, 1105-1117."
    ),
    "Wolbers": (
        "Wolbers M, Koller MT, Witteman JCM, Steyerberg EW (2009). Prognostic models with competing "
        "risks. Epidemiology 20, 555-561."
    ),
    "Yang": (
        "Yang D, Dalton JE (2012). A unified approach to measuring the effect size between two groups "
        "using SAS. SAS Global Forum, paper 335-2012."
    ),
}


def references(sections: list[Section]) -> Section:
    """The references that some sections cite, by author."""
    texts = " ".join(text for section in sections for text in _texts(section))
    cited = [entry for key, entry in _REFERENCES.items() if key in texts]
    return Section("References", [Bullets(sorted(cited))])


def _texts(block: Block) -> list[str]:
    if isinstance(block, Section):
        return [block.title, *(text for inner in block.blocks for text in _texts(inner))]
    if isinstance(block, Paragraph):
        return [block.text]
    return list(block.items) if isinstance(block, Bullets) else []
