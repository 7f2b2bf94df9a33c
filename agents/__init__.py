"""Learned policies: networks, training and shipped weights."""
