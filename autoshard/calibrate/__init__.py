"""Calibration: measure the devices that JAX sees, and write the figures as a hardware profile."""

from autoshard.calibrate.run import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]
