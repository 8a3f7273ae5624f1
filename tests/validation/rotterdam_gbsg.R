# A Cox model of Rotterdam scored on GBSG by R, for test_golden.py:
#   Rscript tests/validation/rotterdam_gbsg.R > tests/validation/rotterdam_gbsg_in_r.json
# with survival 3.5-3, rms 6.5-0 and riskRegression 2022.11.28 (Debian 12). Rows as of McLernon et al. (2023).

suppressPackageStartupMessages({
  library(survival)
  library(rms)
  library(riskRegression)
})

horizon <- 5
highest <- quantile(rotterdam$nodes, .99, type = 1)
features <- function(size, data) {
  nodes <- pmin(data$nodes, highest)
  data.frame(
    middle = as.numeric(size == "20-50"), large = as.numeric(size == ">50"), nodes = nodes,
    bent = as.numeric(rcspline.eval(nodes, knots = c(0, 1, 9))), grade = as.numeric(data$grade == 3)
  )
}
up_to_horizon <- function(data, days, event) {
  years <- days / 365.25
  cbind(data, time = pmin(years, horizon), event = ifelse(years > horizon, 0, event))
}
died_later <- with(rotterdam, recur == 0 & death == 1 & rtime < dtime)
fitted_to <- up_to_horizon(
  features(rotterdam$size, rotterdam), with(rotterdam, ifelse(died_later, dtime, rtime)),
  with(rotterdam, pmax(recur, death))
)
size <- cut(gbsg$size, c(-1, 20, 50, 500), c("<=20", "20-50", ">50"))
rows <- up_to_horizon(features(size, gbsg), gbsg$rfstime, gbsg$status)

cox <- coxph(Surv(time, event) ~ middle + large + nodes + bent + grade, fitted_to, x = TRUE, y = TRUE)
rows$score <- predict(cox, newdata = rows)
rows$risk <- as.numeric(predictRisk(cox, newdata = rows, times = horizon))
rows <- as.data.frame(rows) # which predictRisk has made a data.table
rows$z <- log(-log(1 - rows$risk))

entry <- function(name, x) {
  sprintf("\"%s\": [%s]", name, paste(sprintf("%.17g", unname(x)), collapse = ", "))
}
concordant <- function(weights) {
  found <- concordance(Surv(time, event) ~ score, rows, reverse = TRUE, timewt = weights)
  c(found$concordance, sqrt(found$var))
}
alive <- function(data) summary(survfit(Surv(time, event) ~ 1, data), times = horizon)$surv
ratio <- (1 - alive(rows)) / mean(rows$risk)
slope <- coxph(Surv(time, event) ~ z, rows)

# The calibration curve of ICI and its kin, by coxph and by cph, which stops its iterations earlier.
spline <- rcspline.eval(rows$z, nk = 3, inclx = TRUE)
rows$line <- spline[, 1]
rows$curve <- spline[, 2]
flexible <- coxph(Surv(time, event) ~ line + curve, rows)
curves <- survfit(flexible, newdata = rows[c("line", "curve")], conf.type = "log-log")
observed <- summary(curves, times = horizon)
distances <- function(survival) {
  off <- abs(rows$risk - (1 - as.numeric(survival)))
  c(mean(off), quantile(off, c(.5, .9)), max(off))
}
of_rms <- cph(Surv(time, event) ~ rcs(z, 3), rows, x = TRUE, y = TRUE, surv = TRUE)

benefit <- sapply(c(.23, .4, .6), function(p) {
  above <- rows$risk > p
  survived <- alive(rows[above, ])
  mean(above) * (1 - survived - survived * p / (1 - p))
})
# Nobody is left beyond the horizon, and Score needs somebody.
score <- Score(
  list(cox = cox), formula = Surv(time, event) ~ 1, data = rows, times = 4.99, conf.int = TRUE,
  cens.model = "km", metrics = c("brier", "auc"), summary = "ipa"
)
brier <- as.data.frame(score$Brier$score)[2, ]
auc <- as.data.frame(score$AUC$score)[1, ]

parts <- c(
  entry("coefficients", coef(cox)),
  entry("survival", 1 - rows$risk[1:3]),
  entry("c_harrell_t", concordant("n")),
  entry("c_uno_t", concordant("n/G2")),
  entry("oe_ratio", c(ratio, ratio * exp(qnorm(c(.025, .975)) / sqrt(sum(rows$event))))),
  entry("calibration_slope", c(coef(slope), sqrt(vcov(slope)))),
  entry("calibration_errors", distances(observed$surv)),
  entry("calibration_errors_rms", distances(survest(of_rms, times = horizon, newdata = rows)$surv)),
  entry("observed", as.numeric(observed$surv)[1:3]),
  entry("lower", as.numeric(observed$lower)[1:3]),
  entry("upper", as.numeric(observed$upper)[1:3]),
  entry("net_benefit", benefit),
  entry("auc_at_4.99", c(auc$AUC, auc$se)),
  entry("brier_at_4.99", c(brier$Brier, brier$se, brier$IPA))
)
cat("{\n  ", paste(parts, collapse = ",\n  "), "\n}\n", sep = "")
