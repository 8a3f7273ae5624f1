# Calibration of one event by pseudo-values, for test_calibration.py:
#   Rscript tests/metrics/calibration.R > tests/metrics/calibration_in_r.json
# with survival 3.5-3 (Debian 12): death in pbc by 2000 days, an arbitrary prediction, weights 0.5 to 2. The
# regressions are weighted least squares of survival::pseudo with a complementary log-log link; their errors
# are the sandwich.

suppressPackageStartupMessages(library(survival))

entry <- function(name, x) {
  sprintf("\"%s\": [%s]", name, paste(sprintf("%.17g", unname(x)), collapse = ", "))
}
spline <- function(x) {
  k <- quantile(x, c(.1, .5, .9))
  cube <- function(knot) pmax(x - knot, 0)^3
  (cube(k[1]) - cube(k[2]) * (k[3] - k[1]) / (k[3] - k[2]) + cube(k[3]) * (k[2] - k[1]) / (k[3] - k[2])) /
    (k[3] - k[1])^2
}
one <- with(pbc, data.frame(time = time, event = as.numeric(status == 2), age = age))
n <- nrow(one)
horizon <- 2000
one$risk <- 1 - exp(-exp((one$age - 60) / 20))
one$z <- log(-log(1 - one$risk))
one$curve <- spline(one$z)
parts <- c()
for (kind in c("plain", "weighted")) {
  one$w <- if (kind == "plain") rep(1, n) else c(.5, 1, 2, 1.5)[seq_len(n) %% 4 + 1]
  fit <- survfit(Surv(time, event) ~ 1, one, weights = w, id = seq_len(n))
  at <- summary(fit, times = horizon)
  # R multiplies the derivative with the number of rows, not with the sum of their weights.
  own <- as.numeric(pseudo(fit, times = horizon))
  one$y <- 1 - (at$surv + (own - at$surv) * mean(one$w))
  solve_ls <- function(x, offset) {
    b <- if (ncol(x) == 1) 0 else c(0, 1, 0)[seq_len(ncol(x))]
    for (step in 1:1000) { # Gauss and Newton
      h <- exp(as.numeric(x %*% b) + offset)
      d <- h * exp(-h) * x
      bread <- solve(t(d) %*% (one$w * d))
      b <- b + as.numeric(bread %*% t(d) %*% (one$w * (one$y - (1 - exp(-h)))))
    }
    score <- one$w * (one$y - (1 - exp(-h))) * d
    list(b = b, v = bread %*% t(score) %*% score %*% bread, risk = 1 - exp(-h))
  }
  ones <- matrix(1, n, 1)
  intercept <- solve_ls(ones, one$z)
  slope <- solve_ls(cbind(1, one$z), 0)
  flexible <- solve_ls(cbind(1, one$z, one$curve), 0)
  distance <- abs(flexible$risk - one$risk)
  name <- function(x) paste0(kind, "_", x)
  parts <- c(
    parts,
    entry(name("pseudo"), one$y[1:5]),
    entry(name("intercept"), c(intercept$b, sqrt(intercept$v))),
    entry(name("slope"), c(slope$b[2], sqrt(slope$v[2, 2]))),
    entry(name("errors"), c(weighted.mean(distance, one$w), max(distance))),
    entry(name("oe_ratio"), c((1 - at$surv) / weighted.mean(one$risk, one$w), at$std.err / (1 - at$surv)))
  )
}
cat("{\n  ", paste(parts, collapse = ",\n  "), "\n}\n", sep = "")
