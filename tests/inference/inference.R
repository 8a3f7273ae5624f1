# Covariances, tests and p-values by R, for test_in_r.py:
#   Rscript tests/inference/inference.R tests          # writes inference/inference_in_r.csv and .json
# with survival 3.5-3 and mgcv 1.8-41 (Debian 12).
#
# "survreg": parametric regressions without penalties, with the covariance of coefficients and log scale, the one
# robust to clusters, and the log-likelihoods with and without covariates.
# "strata": the same with strata(sex), whose effect is in the model, and an offset; "cox": coefficients of coxph
# with the strata.
# "columns": the regression of tests/optim/penalties.R at penalties estimated by REML, of which the standard errors of the
# log hazards of twelve rows and the effective degrees of freedom.
# "smooth": terms of mgcv with what their p-values are made of.

suppressPackageStartupMessages({library(survival); library(mgcv)})
folder <- commandArgs(TRUE)[1]
numbers <- function(v) {
  text <- paste(sprintf("%.15g", as.vector(v)), collapse = ", ")
  if (length(v) == 1) text else paste0("[", text, "]")
}
object <- function(parts) paste0("{", paste(sprintf("\"%s\": %s", names(parts), unlist(parts)), collapse = ", "), "}")

set.seed(11)
n <- 240
rows <- data.frame(centre = rep(1:40, each = 6), age = round(runif(n, 30, 80), 1), marker = round(rnorm(n), 3),
                   arm = factor(sample(c("control", "drug", "both"), n, TRUE, c(3, 2, 1))))
shared <- rnorm(40, sd = 0.5)[rows$centre]
eta <- 6 - 0.02 * rows$age + 0.3 * rows$marker + 0.5 * (rows$arm == "drug") + shared
time <- round(exp(eta + 0.7 * log(rexp(n))), 3) + 0.001
censoring <- round(runif(n, 50, 500), 3)
rows$time <- pmin(time, censoring)
rows$event <- as.integer(time <= censoring)
write.csv(rows, file.path(folder, "inference", "inference_in_r.csv"), row.names = FALSE)

control <- survreg.control(rel.tolerance = 1e-14, maxiter = 100)
rows$arm <- relevel(rows$arm, "control")
of_family <- function(dist) {
  formula <- Surv(time, event) ~ age + marker + arm
  fit <- survreg(formula, rows, dist = dist, control = control)
  robust <- survreg(formula, rows, dist = dist, control = control, cluster = centre)
  object(list(coef = numbers(c(coef(fit), log(fit$scale))), names = paste0("[", paste0("\"", c(names(coef(fit)), "log(scale)"), "\"", collapse = ", "), "]"),
              vcov = numbers(vcov(fit)), robust = numbers(vcov(robust)), loglik = numbers(fit$loglik)))
}
survregs <- object(sapply(c(weibull = "weibull", log_logistic = "loglogistic", log_normal = "lognormal"), of_family))

rows$sex <- factor(ifelse(rows$centre %% 2 == 0, "f", "m"))
rows$exposure <- round(0.3 * sin(seq_len(n)), 3)
with_strata <- function(dist) {
  fit <- survreg(Surv(time, event) ~ age + marker + arm + sex + strata(sex) + offset(exposure), rows, dist = dist,
                 control = control)
  object(list(coef = numbers(c(coef(fit), log(fit$scale))), vcov = numbers(vcov(fit)), loglik = numbers(fit$loglik[2])))
}
strata <- object(sapply(c(weibull = "weibull", log_logistic = "loglogistic", log_normal = "lognormal"), with_strata))
cox <- numbers(coef(coxph(Surv(time, event) ~ age + marker + arm + strata(sex), rows)))

# As in tests/optim/penalties.R.
old <- read.csv(file.path(folder, "optim", "penalties_in_r.csv"), stringsAsFactors = TRUE)
old$offset <- log(old$time)
deviation <- function(v) sqrt(mean((v - mean(v))^2))
standard <- function(v) (v - mean(v)) / deviation(v)
knots <- list(x = quantile(old$x, seq(0.05, 0.95, length.out = 5), names = FALSE))
basis <- smoothCon(s(x, bs = "cr", k = 5), old, knots)[[1]]
roughness <- eigen(basis$S[[1]] * basis$S.scale * deviation(old$x)^3, symmetric = TRUE)
whole <- basis$X %*% roughness$vectors[, 1:3] %*% diag(roughness$values[1:3]^-0.5)
curve <- residuals(lm(whole ~ old$x))
old$Curve <- curve / sqrt(sum(colMeans(curve^2)))
old$Line <- cbind(standard(old$x), standard(old$z1), standard(old$z2))
old$Category <- model.matrix(~ g - 1, old)
fit <- gam(event ~ offset(offset) + Line + Curve + Category, family = poisson, data = old, method = "REML",
           paraPen = list(Line = list(diag(3)), Curve = list(diag(3)), Category = list(diag(12))),
           control = gam.control(epsilon = 1e-12, newton = list(conv.tol = 1e-9)))
predicted <- predict(fit, se.fit = TRUE)
columns <- object(list(se = numbers(predicted$se.fit[1:12]), line = numbers(sum(fit$edf[2:4])),
                       curve = numbers(sum(fit$edf[5:7])), category = numbers(sum(fit$edf[8:19]))))

of_smooth <- function(k) {
  smooth <- gam(event ~ offset(offset) + x + s(z1, bs = "cr", k = k) + s(z2, bs = "cr", k = k), family = poisson, data = old,
                method = "REML")
  sapply(1:2, function(j) {
    term <- smooth$smooth[[j]]
    places <- term$first.para:term$last.para
    table <- summary(smooth, re.test = FALSE)$s.table
    object(list(coef = numbers(coef(smooth)[places]), vp = numbers(smooth$Vp[places, places]), gram = numbers(crossprod(smooth$R[, places])),
                edf1 = numbers(sum(smooth$edf1[places])), statistic = numbers(table[j, "Chi.sq"]), p = numbers(table[j, "p-value"])))
  })
}
smooths <- paste0("[", paste(c(of_smooth(5), of_smooth(8)), collapse = ", "), "]")
cat("{\n\"survreg\": ", survregs, ",\n\"strata\": ", strata, ",\n\"cox\": ", cox, ",\n\"columns\": ", columns, ",\n\"smooth\": ", smooths, "\n}\n", sep = "",
    file = file.path(folder, "inference", "inference_in_r.json"))
