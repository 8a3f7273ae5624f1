# Scores of rows with a beginning and an end by R, for test_entry.py:
#   Rscript tests/metrics/entry.R > tests/metrics/entry_in_r.json
# with survival 3.5-3 (Debian 12).

suppressPackageStartupMessages(library(survival))

numbers <- function(x) paste0("[", paste(sprintf("%.17g", x), collapse = ", "), "]")
part <- function(name, x) sprintf("\"%s\": %s", name, numbers(x))

# A risk with ties, and weights of the rows.
of_set <- function(name, start, stop, event, risk) {
  weight <- 1 + seq_along(stop) %% 3
  y <- Surv(start, stop, event)
  km <- survfit(y ~ 1)
  weighted_km <- survfit(y ~ 1, weights = weight)
  parts <- c(
    part("start", start), part("stop", stop), part("event", event), part("risk", risk),
    part("times", km$time), part("survival", km$surv), part("weighted_survival", weighted_km$surv),
    part("concordance", concordance(y ~ risk, reverse = TRUE)$concordance),
    part("weighted_concordance", concordance(y ~ risk, weights = weight, reverse = TRUE)$concordance),
    part("truncated_concordance", concordance(y ~ risk, reverse = TRUE, ymax = median(stop))$concordance)
  )
  sprintf("\"%s\": {\n  %s\n}", name, paste(parts, collapse = ",\n  "))
}

cat("{\n", paste(c(
  with(heart, of_set("heart", start, stop, event, round(age / 4))),
  with(cgd, of_set("cgd", tstart, tstop, status, -round(age / 3)))
), collapse = ",\n"), "\n}\n", sep = "")
