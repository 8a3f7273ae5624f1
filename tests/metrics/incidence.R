# Cumulative incidences and their scores by R, for test_incidence.py:
#   Rscript tests/metrics/incidence.R > tests/metrics/incidence_in_r.json
# with survival 3.5-3, MASS 7.3-58.2, riskRegression 2022.11.28 and pec 2022.05.04 (Debian 12).

pdf(NULL)
suppressPackageStartupMessages({
  library(survival)
  library(riskRegression)
  library(pec)
})

sets <- list(
  mgus2 = with(mgus2, data.frame(
    time = ifelse(pstat == 1, ptime, futime), cause = ifelse(pstat == 1, 1, 2 * death), age = age
  )),
  pbc = with(pbc, data.frame(time = time, cause = status, age = age)),
  melanoma = with(MASS::Melanoma, data.frame(
    time = time, cause = c(1, 0, 2)[status], age = age
  ))
)
horizons <- list(
  mgus2 = c(12, 60, 120.5, 240, 340), pbc = c(200, 1000, 2000, 3500, 4500),
  melanoma = c(100, 500, 1500, 2500, 4000)
)
# An arbitrary prediction.
predict_incidence <- function(data, times) {
  1 - exp(-outer(exp((data$age - 60) / 20), times) / (3 * max(times)))
}

numbers <- function(x) {
  paste0("[", paste(ifelse(is.nan(x), "null", sprintf("%.17g", x)), collapse = ", "), "]")
}
entry <- function(name, x) sprintf("\"%s\": %s", name, numbers(x))

of_set <- function(name) {
  data <- sets[[name]]
  times <- horizons[[name]]
  fit <- summary(survfit(Surv(time, factor(cause)) ~ 1, data), times = times)
  parts <- c(entry("times", times))
  predicted <- predict_incidence(data, times)
  # Where times are tied, pec weighs pairs by G at and before an event, and counts an event at the horizon.
  untied <- transform(data, time = time + seq_len(nrow(data)) / 1e5)
  for (cause in 1:2) {
    score <- suppressMessages(Score(
      list(m = predicted), formula = Hist(time, cause) ~ 1, data = data, cause = cause, times = times,
      metrics = c("brier", "auc"), cens.model = "km", null.model = FALSE, se.fit = FALSE,
      progress.bar = NULL
    ))
    pairs <- suppressMessages(cindex(
      list(m = predicted), formula = Hist(time, cause) ~ 1, data = untied, cause = cause,
      eval.times = times, pred.times = times, cens.model = "marginal"
    ))
    parts <- c(
      parts,
      entry(paste0("incidence_", cause), fit$pstate[, cause + 1]),
      entry(paste0("error_", cause), fit$std.err[, cause + 1]),
      entry(paste0("brier_", cause), score$Brier$score$Brier),
      entry(paste0("auc_", cause), score$AUC$score$AUC),
      entry(paste0("wolbers_", cause), pairs$AppCindex$m)
    )
  }
  sprintf("\"%s\": {\n  %s\n}", name, paste(parts, collapse = ",\n  "))
}

cat("{\n\"sets\": {\n", paste(sapply(names(sets), of_set), collapse = ",\n"), "\n}\n}\n", sep = "")
