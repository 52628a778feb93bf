"""Bounds that leave a certificate: what was reduced, messages and prices in whole numbers, and branches with leaves.

`autoshard.verify.certificate` reads it and judges it on the original network; the two share no code.
"""
