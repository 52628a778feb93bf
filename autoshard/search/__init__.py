"""Ways to search one and the same network by name: propagation's ladder, greedy, staged and joint.

All of them decide the same nodes under the same statements, so what they cost can be compared.
"""
