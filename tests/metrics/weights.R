# Inference with sampling weights by R, for test_incidence.py and test_groups.py:
#   Rscript tests/metrics/weights.R > tests/metrics/weights_in_r.json
# with survival 3.5-3 (Debian 12).

suppressPackageStartupMessages(library(survival))

numbers <- function(x) paste0("[", paste(ifelse(is.na(x), "null", sprintf("%.17g", x)), collapse = ", "), "]")
part <- function(name, x) sprintf("\"%s\": %s", name, numbers(x))
set <- function(name, parts) sprintf("\"%s\": {\n  %s\n}", name, paste(parts, collapse = ",\n  "))

# Weights that need no random numbers: from .02 to 3.8 here, without ties.
weights_of <- function(n) round(exp(2 * sin(seq_len(n))) / 2 + seq_len(n) / 1e4, 5)

curve <- function(fit) {
  quantiles <- quantile(fit, c(.25, .5))
  c(
    part("times", fit$time[fit$n.event > 0]), part("survival", fit$surv[fit$n.event > 0]),
    part("lower", fit$lower[fit$n.event > 0]), part("upper", fit$upper[fit$n.event > 0]),
    part("quantile", quantiles$quantile), part("quantile_lower", quantiles$lower),
    part("quantile_upper", quantiles$upper)
  )
}

lung <- survival::lung[complete.cases(survival::lung[c("time", "status", "age", "inst")]), ]
lung$w <- weights_of(nrow(lung))
lung$g <- as.integer(cut(lung$age, c(0, 56, 66, 99)))
lung$place <- lung$inst %% 3
right <- c(
  part("time", lung$time), part("event", lung$status - 1), part("weight", lung$w), part("group", lung$g),
  part("stratum", lung$place),
  curve(survfit(Surv(time, status) ~ 1, lung, weights = w, robust = TRUE, conf.type = "log-log")),
  part("logrank", coxph(Surv(time, status) ~ factor(g), lung, weights = w, ties = "breslow", robust = TRUE)$rscore),
  part("stratified", coxph(
    Surv(time, status) ~ factor(g) + strata(place), lung, weights = w, ties = "breslow", robust = TRUE
  )$rscore)
)

# One row a subject, observed late.
late <- lung
late$start <- round(late$time * ((seq_len(nrow(late)) * 7) %% 10) / 12)
late <- late[late$start < late$time, ]
truncated <- c(
  part("entry", late$start), part("time", late$time), part("event", late$status - 1), part("weight", late$w),
  part("group", late$g),
  curve(survfit(
    Surv(start, time, status) ~ 1, late, weights = w, id = seq_len(nrow(late)), robust = TRUE,
    conf.type = "log-log"
  )),
  part("logrank", coxph(
    Surv(start, time, status) ~ factor(g), late, weights = w, ties = "breslow", cluster = seq_along(w)
  )$rscore)
)

# Several rows a subject, with weights that change with time.
heart <- survival::heart
heart$w <- weights_of(nrow(heart))
counting <- c(
  part("entry", heart$start), part("time", heart$stop), part("event", heart$event), part("weight", heart$w),
  part("id", heart$id), part("group", as.integer(heart$transplant)),
  part("logrank", coxph(
    Surv(start, stop, event) ~ transplant, heart, weights = w, ties = "breslow", cluster = id
  )$rscore)
)
# survfit wants a constant weight of each subject.
heart$w <- weights_of(max(heart$id))[heart$id]
subjects <- c(
  part("entry", heart$start), part("time", heart$stop), part("event", heart$event), part("weight", heart$w),
  part("id", heart$id),
  curve(survfit(
    Surv(start, stop, event) ~ 1, heart, weights = w, id = id, robust = TRUE, conf.type = "log-log"
  ))
)

mgus2 <- survival::mgus2[1:300, ]
mgus2$t <- with(mgus2, ifelse(pstat == 0, futime, ptime))
mgus2$cause <- with(mgus2, ifelse(pstat == 0, 2 * death, 1))
mgus2$w <- weights_of(300)
aj <- summary(survfit(Surv(t, factor(cause)) ~ 1, mgus2, weights = w, robust = TRUE), times = c(12, 60, 120, 240))
causes <- c(
  part("time", mgus2$t), part("cause", mgus2$cause), part("weight", mgus2$w), part("times", aj$time),
  part("incidence_1", aj$pstate[, 2]), part("incidence_2", aj$pstate[, 3]),
  part("error_1", aj$std.err[, 2]), part("error_2", aj$std.err[, 3])
)

cat("{\n", paste(c(
  set("right", right), set("truncated", truncated), set("counting", counting), set("subjects", subjects),
  set("causes", causes)
), collapse = ",\n"), "\n}\n", sep = "")
