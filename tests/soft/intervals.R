# Regressions of times within intervals by R, for test_intervals.py. The rows are those of load_dataset, written by
#   python -c "import pandas as pd; from sstorch import load_dataset
#   for name in ('diabetes', 'bcdeter'):
#       data = load_dataset(name)
#       pd.get_dummies(data.frame, drop_first=True, dtype=float).join(pd.DataFrame(data.y)).to_csv(name + '.csv', index=False)"
#   Rscript tests/soft/intervals.R > tests/soft/intervals_in_r.json
# with survival 3.5-3 (Debian 12).

suppressPackageStartupMessages(library(survival))

of_set <- function(name) {
  rows <- read.csv(paste0(name, ".csv"))
  lower <- ifelse(rows$lower == 0, NA, rows$lower)
  upper <- ifelse(is.infinite(rows$upper), NA, rows$upper)
  x <- as.matrix(rows[, setdiff(names(rows), c("lower", "upper"))])
  fits <- sapply(c("weibull", "loglogistic", "lognormal"), function(dist) {
    fit <- survreg(Surv(lower, upper, type = "interval2") ~ x, dist = dist,
                   control = survreg.control(rel.tolerance = 1e-13, maxiter = 200))
    sprintf("\"%s\": {\"log_likelihood\": %.17g, \"slopes\": [%s], \"scale\": %.17g}", dist, fit$loglik[2],
            paste(sprintf("%.17g", coef(fit)[-1]), collapse = ", "), fit$scale)
  })
  sprintf("  \"%s\": {\n    %s\n  }", name, paste(fits, collapse = ",\n    "))
}

cat("{\n", paste(sapply(c("diabetes", "bcdeter"), of_set), collapse = ",\n"), "\n}\n", sep = "")
