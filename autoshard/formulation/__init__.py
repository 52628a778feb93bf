"""Formulation: a program and its statements as a cost network, and a solution back as a schedule."""
