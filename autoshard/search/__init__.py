"""Ways to search the network of a problem, by name: propagation's ladder, greedy, staged and joint.

All of them decide the same nodes under the same statements, so their costs can be compared.
"""
