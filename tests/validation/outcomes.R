# Validation with weights, late entry and competing causes by R, for test_outcomes.py:
#   Rscript tests/validation/outcomes.R > tests/validation/outcomes_in_r.json
# with survival 3.5-3, MASS 7.3-58.2, riskRegression 2022.11.28 and geepack 1.3.9 (Debian 12).

suppressPackageStartupMessages({
  library(survival)
  library(riskRegression)
  library(geepack)
})

entry <- function(name, x) {
  sprintf("\"%s\": [%s]", name, paste(sprintf("%.17g", unname(x)), collapse = ", "))
}
# The restricted cubic spline of Harrell with three knots, in the unit of x.
spline <- function(x) {
  k <- quantile(x, c(.1, .5, .9))
  cube <- function(knot) pmax(x - knot, 0)^3
  (cube(k[1]) - cube(k[2]) * (k[3] - k[1]) / (k[3] - k[2]) + cube(k[3]) * (k[2] - k[1]) / (k[3] - k[2])) /
    (k[3] - k[1])^2
}

# One event: death in pbc by 2000 days, an arbitrary prediction, every third row entered late, weights 0.5 to 2.
one <- with(pbc, data.frame(time = time, event = as.numeric(status == 2), age = age))
n <- nrow(one)
one$entry <- ifelse(seq_len(n) %% 3 == 0, floor(one$time / 2), 0)
one$weight <- c(.5, 1, 2, 1.5)[seq_len(n) %% 4 + 1]
horizon <- 2000
one$risk <- 1 - exp(-exp((one$age - 60) / 20))
one$z <- log(-log(1 - one$risk))
one$curve <- spline(one$z)
cut <- transform(subset(one, entry < horizon), event = event * (time <= horizon), time = pmin(time, horizon))

of_rows <- function(prefix, cut, y) {
  cut$y <- y
  slope <- coxph(y ~ z, cut, weights = weight, cluster = seq_len(nrow(cut)))
  flexible <- coxph(y ~ z + curve, cut, weights = weight)
  observed <- summary(survfit(flexible, newdata = one[c("z", "curve")]), times = horizon)$surv
  distance <- abs(one$risk - (1 - as.numeric(observed)))
  pairs <- concordance(y ~ z, cut, weights = weight, reverse = TRUE)
  alive <- function(above) {
    summary(survfit(y ~ 1, cut, weights = weight, subset = above), times = horizon)$surv
  }
  benefit <- sapply(c(.3, .5), function(p) {
    survived <- alive(cut$risk >= p)
    share <- with(one, sum(weight[risk >= p]) / sum(weight))
    share * (1 - survived - survived * p / (1 - p))
  })
  names <- paste0(prefix, c("c_harrell_t", "calibration_slope", "ici", "net_benefit", "survival"))
  mapply(entry, names, list(
    c(pairs$concordance, sqrt(pairs$var)), c(coef(slope), sqrt(vcov(slope))),
    c(weighted.mean(distance, one$weight), max(distance)), benefit, alive(rep(TRUE, nrow(cut)))
  ))
}
parts <- c(
  of_rows("late_", cut, Surv(cut$entry, cut$time, cut$event)),
  of_rows("weighted_", transform(one, event = event * (time <= horizon), time = pmin(time, horizon)),
    with(one, Surv(pmin(time, horizon), event * (time <= horizon))))
)

# Competing causes: melanoma at 2500 days, with and without weights.
two <- with(MASS::Melanoma, data.frame(
  time = time, cause = c(1, 0, 2)[status], age = age, thickness = thickness
))
two$weight <- c(.5, 1, 2, 1.5)[seq_len(nrow(two)) %% 4 + 1]
horizon <- 2500
two$risk <- 1 - exp(-exp((two$age - 60) / 40 + log(two$thickness) / 2 - 1.5))
two$z <- log(-log(1 - two$risk))
two$curve <- spline((two$z - mean(two$z)) / sqrt(mean((two$z - mean(two$z))^2)))
for (cause in 1:2) {
  # The errors of Score for a cause that is not the first are those of the first: the causes are exchanged.
  first <- two
  first$cause <- ifelse(two$cause == 0, 0, ifelse(two$cause == cause, 1, 2))
  score <- suppressMessages(Score(
    list(m = matrix(two$risk)), formula = Hist(time, cause) ~ 1, data = first, cause = 1, times = horizon,
    metrics = c("brier", "auc"), summary = "ipa", cens.model = "km", null.model = TRUE, se.fit = TRUE,
    conservative = FALSE, progress.bar = NULL
  ))
  brier <- as.data.frame(score$Brier$score)
  brier <- brier[brier$model == "m", ]
  auc <- as.data.frame(score$AUC$score)
  parts <- c(
    parts,
    entry(paste0("brier_", cause), c(brier$Brier, brier$se, brier$IPA)),
    entry(paste0("auc_", cause), c(auc$AUC, auc$se))
  )
  for (kind in c("plain", "weighted")) {
    two$w <- if (kind == "plain") rep(1, nrow(two)) else two$weight
    fit <- survfit(Surv(time, factor(cause)) ~ 1, two, weights = w, id = seq_len(nrow(two)))
    at <- summary(fit, times = horizon)
    observed <- at$pstate[cause + 1]
    # R multiplies the derivative with the number of rows, not with the sum of their weights.
    own <- pseudo(fit, times = horizon)[, cause + 1]
    two$pseudo <- observed + (own - observed) * mean(two$w)
    # cloglog in geese is log(-log(1 - x)).
    recalibrate <- function(formula) {
      geese(formula, data = two, id = seq_len(nrow(two)), weights = two$w, scale.fix = TRUE,
        family = gaussian, mean.link = "cloglog", corstr = "independence", jack = FALSE,
        control = geese.control(epsilon = 1e-12, maxit = 200))
    }
    intercept <- recalibrate(pseudo ~ offset(z))
    slope <- recalibrate(pseudo ~ offset(z) + z)
    flexible <- recalibrate(pseudo ~ z + curve)
    smooth <- 1 - exp(-exp(cbind(1, two$z, two$curve) %*% flexible$beta))
    distance <- abs(as.numeric(smooth) - two$risk)
    name <- function(x) paste0(kind, "_", x, "_", cause)
    parts <- c(
      parts,
      entry(name("pseudo"), two$pseudo[1:5]),
      entry(name("oe_ratio"), c(observed / weighted.mean(two$risk, two$w), at$std.err[cause + 1] / observed)),
      entry(name("calibration_intercept"), c(intercept$beta, sqrt(intercept$vbeta))),
      entry(name("calibration_slope"), c(1 + slope$beta[2], sqrt(slope$vbeta[2, 2]))),
      entry(name("ici"), c(weighted.mean(distance, two$w), max(distance)))
    )
  }
}
cat("{\n  ", paste(parts, collapse = ",\n  "), "\n}\n", sep = "")
