"""Whether anything fits at all, by search that learns a nogood from every dead end (as in conflict-driven SAT solvers).

Costs do not count here: only what tables allow and what is held within the limit. A nogood says that some nodes cannot
all be outside of some of their states; so few of them can refute what bounds of messages, which may choose states in
part, never show.
"""
