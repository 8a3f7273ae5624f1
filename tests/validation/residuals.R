# Residuals of a Weibull regression by R, for test_residuals.py:
#   Rscript tests/validation/residuals.R tests         # writes validation/residuals_in_r.json
# with survival 3.5-3 (Debian 12); rows of tests/inference/inference.R.
suppressPackageStartupMessages(library(survival))
folder <- commandArgs(TRUE)[1]
rows <- read.csv(file.path(folder, "inference", "inference_in_r.csv"))
rows$arm <- relevel(factor(rows$arm), "control")
fit <- survreg(Surv(time, event) ~ age + marker + arm, rows, dist = "weibull",
               control = survreg.control(rel.tolerance = 1e-14, maxiter = 100))
shown <- 1:40
numbers <- function(v) paste0("[", paste(sprintf("%.10g", v), collapse = ", "), "]")
change <- residuals(fit, "dfbeta")[shown, 2:5]
cat(sprintf("{\"deviance\": %s,\n\"dfbeta\": [%s]}\n", numbers(residuals(fit, "deviance")[shown]),
            paste(apply(change, 1, numbers), collapse = ",\n")), file = file.path(folder, "validation", "residuals_in_r.json"))
