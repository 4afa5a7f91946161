"""The parent of the ranks: states, processes, hangs, its report."""
