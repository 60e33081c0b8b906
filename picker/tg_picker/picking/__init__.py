"""Requests -> servers of the pools: the code that the picker for Envoy and the provider `pool` share."""

from tg_picker.picking.pool_picker import PoolPicker

__all__ = ["PoolPicker"]
