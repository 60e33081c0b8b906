"""Requests -> servers of the pools: what a picker for Envoy and the provider `pool` have in common."""

from tg_picker.picking.pool_picker import PoolPicker

__all__ = ["PoolPicker"]
