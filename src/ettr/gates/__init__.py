"""Gates: results of other programs' graders, and whether a grade on them is firm."""
