# Survival trees of rpart and party, with the curves of their leaves by pec.
#   Rscript r_trees.R fit MODEL DEPTH FOLDER    train.csv (time, event, features) -> model.rds
#   Rscript r_trees.R predict FOLDER            model.rds, rows.csv, times.csv -> leaf.csv, curves.csv
#   Rscript r_trees.R versions                  a line for each package: name and version

suppressPackageStartupMessages({
  library(survival)
  library(prodlim)
  library(pec)
})

read_numbers <- function(file) {
  read.csv(file, colClasses = "numeric", check.names = FALSE)
}

write_numbers <- function(values, file) {
  text <- matrix(sprintf("%.17g", values), nrow = nrow(values))
  write.table(text, file, sep = ",", quote = FALSE, row.names = FALSE, col.names = FALSE)
}

fit <- function(model, depth, folder) {
  train <- read_numbers(file.path(folder, "train.csv"))
  features <- setdiff(names(train), c("time", "event"))
  formula <- reformulate(features, response = quote(Surv(time, event)))
  if (model == "rpart") {
    # Cross-validation (xval) is for pruning, which the complexity parameter's default does while growing.
    control <- rpart::rpart.control(maxdepth = depth, xval = 0)
    if (nrow(rpart::rpart(formula, data = train, control = control)$frame) == 1) {
      # A tree without a split, for which pecRpart has no curve: the same estimate of all rows.
      tree <- prodlim(Hist(time, event) ~ 1, data = train)
    } else {
      tree <- pecRpart(formula, data = train, control = control)
    }
  } else {
    tree <- pecCtree(formula, data = train, controls = party::ctree_control(maxdepth = depth))
  }
  saveRDS(tree, file.path(folder, "model.rds"))
}

leaves <- function(tree, rows) {
  if (inherits(tree, "pecRpart")) {
    # pecRpart takes leaves of equal rate for one.
    rate <- predict(tree$rpart, newdata = rows)
    return(match(rate, unique(rate)))
  }
  if (inherits(tree, "pecCtree")) {
    node <- party::where(tree$ctree, newdata = rows)
    return(match(node, unique(node)))
  }
  rep(1, nrow(rows))
}

predict_curves <- function(folder) {
  tree <- readRDS(file.path(folder, "model.rds"))
  rows <- read_numbers(file.path(folder, "rows.csv"))
  times <- read_numbers(file.path(folder, "times.csv"))$time
  leaf <- leaves(tree, rows)
  # All rows of a leaf have one curve, so the first of each is enough.
  first <- rows[!duplicated(leaf), , drop = FALSE]
  curves <- predictSurvProb(tree, newdata = first, times = times)
  write_numbers(matrix(leaf), file.path(folder, "leaf.csv"))
  write_numbers(matrix(curves, nrow = nrow(first)), file.path(folder, "curves.csv"))
}

arguments <- commandArgs(trailingOnly = TRUE)
set.seed(0)
if (arguments[1] == "fit") {
  fit(arguments[2], as.integer(arguments[3]), arguments[4])
} else if (arguments[1] == "predict") {
  predict_curves(arguments[2])
} else {
  cat("R", as.character(getRversion()), "\n")
  for (package in c("rpart", "party", "pec", "prodlim", "survival")) {
    cat(package, as.character(packageVersion(package)), "\n")
  }
}
