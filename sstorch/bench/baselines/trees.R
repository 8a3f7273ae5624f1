# Survival trees of rpart and party, with the curves of their leaves by pec.
#   Rscript r_trees.R MODEL DEPTH FOLDER    reads train.csv (time, event, features) and writes
#     nodes.csv   a row for each node, the root first: feature (from 0, or -1 in a leaf), threshold, strict
#                 (1: x < threshold goes left, 0: x <= threshold), left and right (rows from 0)
#     leaf.csv    the node of each training row (from 0)
#     curves.csv  a row for each node: survival at the distinct training times; NA where there is no leaf
#   Rscript r_trees.R versions              prints a line for each package: name and version

suppressPackageStartupMessages({
  library(survival)
  library(prodlim)
  library(pec)
})

write_numbers <- function(values, file) {
  text <- matrix(sprintf("%.17g", values), nrow = nrow(values), dimnames = dimnames(values))
  write.table(text, file, sep = ",", quote = FALSE, row.names = FALSE, col.names = !is.null(colnames(values)))
}

rpart_nodes <- function(tree, features) {
  number <- as.integer(rownames(tree$frame)) # the children of k are 2k and 2k + 1
  inner <- tree$frame$var != "<leaf>"
  nodes <- cbind(feature = rep(-1, length(number)), threshold = 0, strict = 1, left = 0, right = 0)
  if (any(inner)) {
    # Without competing and surrogate splits there is one split for each inner node, in their order.
    split <- tree$splits
    less_goes_left <- split[, "ncat"] < 0
    nodes[inner, "feature"] <- match(rownames(split), features) - 1
    nodes[inner, "threshold"] <- split[, "index"]
    nodes[inner, "left"] <- match(2 * number[inner] + !less_goes_left, number) - 1
    nodes[inner, "right"] <- match(2 * number[inner] + less_goes_left, number) - 1
  }
  nodes
}

ctree_nodes <- function(tree) {
  # Node numbers of party are the order in which they are written: the root, the left part, the right part.
  below <- function(node) {
    if (node$terminal) {
      return(rbind(c(-1, 0, 0, 0, 0)))
    }
    split <- node$psplit
    toleft <- is.null(split$toleft) || split$toleft != 0
    children <- c(node$left$nodeID, node$right$nodeID) - 1
    here <- c(split$variableID - 1, split$splitpoint, 0, if (toleft) children else rev(children))
    rbind(here, below(node$left), below(node$right))
  }
  nodes <- below(tree@tree)
  dimnames(nodes) <- list(NULL, c("feature", "threshold", "strict", "left", "right"))
  nodes
}

fit <- function(model, depth, folder) {
  train <- read.csv(file.path(folder, "train.csv"), colClasses = "numeric")
  features <- setdiff(names(train), c("time", "event"))
  formula <- reformulate(features, response = quote(Surv(time, event)))
  if (model == "rpart") {
    # None of these three changes the tree: no value is missing, and it is not pruned afterwards.
    control <- rpart::rpart.control(maxdepth = depth, maxcompete = 0, maxsurrogate = 0, xval = 0)
    tree <- rpart::rpart(formula, data = train, control = control)
    nodes <- rpart_nodes(tree, features)
    leaf <- tree$where
    # pecRpart has no curve for a tree without a split: the same estimate of all rows.
    curves_of <- if (nrow(nodes) == 1) {
      prodlim(Hist(time, event) ~ 1, data = train)
    } else {
      pecRpart(formula, data = train, control = control)
    }
  } else {
    curves_of <- pecCtree(formula, data = train, controls = party::ctree_control(maxdepth = depth))
    nodes <- ctree_nodes(curves_of$ctree)
    leaf <- party::where(curves_of$ctree)
  }
  # All rows of a leaf have one curve, so the first of each is enough.
  first <- which(!duplicated(leaf))
  times <- sort(unique(train$time))
  curves <- matrix(NA_real_, nrow(nodes), length(times))
  curves[leaf[first], ] <- predictSurvProb(curves_of, newdata = train[first, , drop = FALSE], times = times)
  write_numbers(nodes, file.path(folder, "nodes.csv"))
  write_numbers(matrix(leaf - 1), file.path(folder, "leaf.csv"))
  write_numbers(curves, file.path(folder, "curves.csv"))
}

arguments <- commandArgs(trailingOnly = TRUE)
if (arguments[1] == "versions") {
  cat("R", as.character(getRversion()), "\n")
  for (package in c("rpart", "party", "pec", "prodlim", "survival")) {
    cat(package, as.character(packageVersion(package)), "\n")
  }
} else {
  fit(arguments[1], as.integer(arguments[2]), arguments[3])
}
