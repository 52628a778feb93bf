"""Formulation: a program and its statements as a network, and a solution of it back as a schedule."""
