"""Certificates of bounds, judged on the original network by code that shares nothing with the solver.

`check_certificate` replays what was reduced, each step with what justifies it, recomputes every bound in whole numbers
from its messages and prices, and follows every branch to its leaves.
"""

from autoshard.verify.certificate.check import CertificateFault, Verdict, check_certificate
from autoshard.verify.certificate.outline import Factors

__all__ = ["CertificateFault", "Factors", "Verdict", "check_certificate"]
