# Leaves of all trees that rpart (pruned) and ctree (by its criterion) give, of training and of test rows.
#   Rscript --vanilla trees.R rpart|ctree DEPTH MIN_LEAF FOLDER
#     reads train.csv (time, event, binary features) and test.csv (the same columns)
#     writes leaves.csv: a column for each tree, the leaf of each training row, then of each test row
#   Rscript --vanilla trees.R servo FOLDER     writes servo.csv of mlbench
suppressPackageStartupMessages(library(survival))
given <- commandArgs(trailingOnly = TRUE)
folder <- given[length(given)]
if (given[1] == "servo") {
  data(Servo, package = "mlbench")
  write.csv(Servo, file.path(folder, "servo.csv"), row.names = FALSE)
  quit()
}
depth <- as.integer(given[2])
smallest <- as.integer(given[3])
train <- read.csv(file.path(folder, "train.csv"))
both <- rbind(train, read.csv(file.path(folder, "test.csv")))
if (given[1] == "rpart") {
  control <- rpart::rpart.control(
    cp = 0, minbucket = smallest, minsplit = 2 * smallest, maxdepth = depth, xval = 0, maxcompete = 0,
    maxsurrogate = 0
  )
  grown <- rpart::rpart(Surv(time, event) ~ ., train, control = control)
  leaves <- sapply(grown$cptable[, "CP"], function(cp) {
    tree <- rpart::prune(grown, cp = cp)
    tree$frame$yval <- as.integer(rownames(tree$frame)) # what predict gives: the number of the node
    predict(tree, both)
  })
} else {
  grid <- expand.grid(depth = seq_len(depth), mincriterion = c(0, 0.5, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999))
  leaves <- mapply(function(depth, mincriterion) {
    control <- partykit::ctree_control(
      mincriterion = mincriterion, minbucket = smallest, minsplit = 2 * smallest, maxdepth = depth
    )
    predict(partykit::ctree(Surv(time, event) ~ ., train, control = control), both, type = "node")
  }, grid$depth, grid$mincriterion)
}
write.table(leaves, file.path(folder, "leaves.csv"), sep = ",", row.names = FALSE, col.names = FALSE)
