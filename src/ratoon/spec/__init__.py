"""Geometry without weights: what a model's layers are, which share KV blocks, and how many blocks fit."""
