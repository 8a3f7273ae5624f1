# Penalties estimated by restricted maximum likelihood (Laplace's approximation) by R, for test_evidence.py:
#   Rscript tests/optim/penalties.R tests/optim          # writes penalties_in_r.csv and penalties_in_r.json
# with mgcv 1.8-41 (Debian 12).
#
# Times are exponential: with an offset of the log time the event indicator has the likelihood of a Poisson count
# but for the sum of the log times of the events, which is taken off here. So each "log_marginal" is that of the
# times, in nats, with flat priors for what has no penalty and sqrt(2 pi) for each such coefficient.
#
# Penalties are in the units of sstorch: half of lambda times
#   curve     the integral of the squared second derivative, x in units of its standard deviation (divisor n),
#             or the sum of squares of the block of curve columns,
#   line      the sum of squared coefficients of columns in standard deviations,
#   category  the sum of squared levels, whose variance is 1 / lambda.
# "smooth", "smooth_ridge" and "random_effect" are terms of mgcv, "columns" the regression of sstorch with one lambda for
# each kind of coefficient; "columns_low" and "columns_high" have given ones. "cox" is the partial likelihood, beside it.
# Knots of x are at quantiles .05 to .95, five for df = 4; beyond them the curve is straight.

suppressPackageStartupMessages(library(mgcv))
folder <- commandArgs(TRUE)[1]

set.seed(7)
n <- 300
x <- round(rnorm(n), 3)
z1 <- round(rnorm(n) + 0.4 * x, 3)
z2 <- round(runif(n, -2, 2), 3)
g <- factor(sample(LETTERS[1:12], n, TRUE, (1:12) / 78))
eta <- 1.2 * sin(1.5 * x) + 0.4 * z1 + 0.5 * rnorm(12)[g]
time <- pmax(round(rexp(n, exp(eta - 1)), 4), 1e-4)
censoring <- round(runif(n, 0.5, 8), 4)
rows <- data.frame(x, z1, z2, g, time = pmin(time, censoring), event = as.integer(time <= censoring))
write.csv(rows, file.path(folder, "penalties_in_r.csv"), row.names = FALSE)

deviation <- function(v) sqrt(mean((v - mean(v))^2))
standard <- function(v) (v - mean(v)) / deviation(v)
knots <- list(x = quantile(rows$x, seq(0.05, 0.95, length.out = 5), names = FALSE))
rows$offset <- log(rows$time)
of_events <- sum(rows$offset[rows$event == 1])

# The curve as columns whose squared coefficients sum to the roughness in these units, without the nearest line,
# scaled as a block to variances with sum one.
basis <- smoothCon(s(x, bs = "cr", k = 5), rows, knots)[[1]]
roughness <- eigen(basis$S[[1]] * basis$S.scale * deviation(rows$x)^3, symmetric = TRUE)
whole <- basis$X %*% roughness$vectors[, 1:3] %*% diag(roughness$values[1:3]^-0.5)
curve <- residuals(lm(whole ~ rows$x))
block <- sqrt(sum(colMeans(curve^2)))
rows$Curve <- curve / block
rows$Line <- cbind(x = standard(rows$x), z1 = standard(rows$z1), z2 = standard(rows$z2))
rows$Z <- rows$Line[, 2:3]
rows$Category <- model.matrix(~ g - 1, rows)

numbers <- function(v) {
  v <- as.vector(v)
  text <- paste(sprintf("%.15g", v), collapse = ", ")
  if (length(v) == 1) text else paste0("[", text, "]")
}
object <- function(parts) {
  paste0("{", paste(sprintf("\"%s\": %s", names(parts), unlist(parts)), collapse = ", "), "}")
}

# What a fit came out at: penalties are smoothing parameters of mgcv times `unit`, `at` are the coefficients of terms.
about <- function(fit, unit, at) {
  lambda <- if (is.null(fit$full.sp)) fit$sp else fit$full.sp
  object(list(
    penalty = object(setNames(sapply(lambda * unit, numbers), names(unit))),
    freedom = object(sapply(at, function(places) numbers(sum(fit$edf[places])))),
    log_likelihood = numbers(as.numeric(logLik(fit)) - of_events),
    log_marginal = numbers(-fit$gcv.ubre - of_events),
    log_hazard = numbers((predict(fit) - rows$offset)[1:12]),
    category = numbers(if (is.null(at$category)) numeric(0) else coef(fit)[at$category])
  ))
}

fit_of <- function(formula, ...) {
  gam(formula, family = poisson, data = rows, method = "REML", knots = knots,
      control = gam.control(epsilon = 1e-12, newton = list(conv.tol = 1e-9)), ...)
}

# Terms of mgcv: a spline of x, a ridge on z1 and z2 or none, levels as a random effect.
smooth <- fit_of(event ~ offset(offset) + z1 + z2 + s(x, bs = "cr", k = 5))
ridge <- fit_of(event ~ offset(offset) + Z + s(x, bs = "cr", k = 5), paraPen = list(Z = list(diag(2))))
effect <- fit_of(event ~ offset(offset) + z1 + z2 + s(g, bs = "re"))
cox <- gam(time ~ z1 + z2 + s(x, bs = "cr", k = 5), family = cox.ph, weights = event, data = rows, method = "REML",
           knots = knots)
of_curve <- function(fit) 1 / fit$smooth[[1]]$S.scale / deviation(rows$x)^3
# The variance of the levels by mgcv's own account is the inverse of lambda.
invisible(capture.output(variance <- gam.vcomp(effect)[1, 1]^2))
stopifnot(abs(variance * effect$sp / effect$smooth[[1]]$S.scale - 1) < 1e-6)

# The regression of sstorch: lines, the curve and levels, each with a variance of its own; at estimated and at
# given penalties.
columns <- function(...) fit_of(event ~ offset(offset) + Line + Curve + Category, ...)
penalised <- function(sp) {
  list(Line = list(diag(3), sp = sp[1]), Curve = list(diag(3), sp = sp[2]), Category = list(diag(12), sp = sp[3]))
}
kinds <- c(line = 1, curve = 1, category = 1)
places <- list(line = 2:4, curve = 5:7, category = 8:19)

cat("{\n", paste0("  \"", c("smooth", "smooth_ridge", "random_effect", "cox", "columns", "columns_low", "columns_high"),
  "\": ", c(
    about(smooth, c(curve = of_curve(smooth)), list(z1 = 2, z2 = 3, x = 4:7)),
    about(ridge, c(line = 1, curve = of_curve(ridge)), list(line = 2:3, x = 4:7)),
    about(effect, c(category = 1 / effect$smooth[[1]]$S.scale), list(z1 = 2, z2 = 3, category = 4:15)),
    object(list(penalty = object(list(curve = numbers(cox$sp * of_curve(cox)))), freedom = numbers(sum(cox$edf[3:6])))),
    about(columns(paraPen = penalised(c(-1, -1, -1))), kinds, places),
    about(columns(paraPen = penalised(c(1, 0.1, 3))), kinds, places),
    about(columns(paraPen = penalised(c(40, 5, 100))), kinds, places)
  ), collapse = ",\n"), "\n}\n", sep = "", file = file.path(folder, "penalties_in_r.json"))
