"""The front door in Python: stores, plans and comparisons with data frames, figures and HTML.

`import ettr` offers what is here, lazily: `ettr.open`, `ettr.read`, `ettr.plan_run`, `ettr.project`
and `ettr.compare`.
"""
