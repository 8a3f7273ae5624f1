# Conditional inference trees of partykit.
#   Rscript ctree.R FOLDER DEPTH MINCRITERION MINSPLIT MINBUCKET
# For each FOLDER/NAME.csv (time, event, numeric features) writes FOLDER/NAME.nodes, a row for each node, the root
# first: feature (from 0, or -1 in a leaf), threshold (x <= threshold goes left), strict (0), left and right (rows
# from 0), p (of the node's test), and seconds (processor time of the fit, the same in all rows).

suppressPackageStartupMessages({
  library(survival)
  library(partykit)
})

nodes_of <- function(tree) {
  rows <- list()
  below <- function(node) {
    here <- length(rows) + 1
    rows[[here]] <<- c(-1, 0, 0, 0, 0, 1)
    if (!is.terminal(node)) {
      split <- split_node(node)
      left <- below(node[[1]])
      right <- below(node[[2]])
      # The first column of the model frame is the outcome.
      rows[[here]] <<- c(split$varid - 2, split$breaks, 0, left - 1, right - 1, info_node(node)$p.value)
    }
    here
  }
  below(node_party(tree))
  do.call(rbind, rows)
}

given <- commandArgs(trailingOnly = TRUE)
sizes <- as.numeric(given[-1])
control <- ctree_control(maxdepth = sizes[1], mincriterion = sizes[2], minsplit = sizes[3], minbucket = sizes[4])
for (file in list.files(given[1], pattern = "[.]csv$", full.names = TRUE)) {
  train <- read.csv(file, colClasses = "numeric")
  took <- system.time(tree <- ctree(Surv(time, event) ~ ., data = train, control = control))
  nodes <- cbind(nodes_of(tree), took["user.self"] + took["sys.self"])
  colnames(nodes) <- c("feature", "threshold", "strict", "left", "right", "p", "seconds")
  text <- matrix(sprintf("%.17g", nodes), nrow = nrow(nodes), dimnames = dimnames(nodes))
  write.table(text, sub("[.]csv$", ".nodes", file), sep = ",", quote = FALSE, row.names = FALSE)
}
