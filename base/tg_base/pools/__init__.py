"""Which model servers there are, what they serve and how busy they are: files, discovery and scrapes."""

from tg_base.pools.catalogue import Catalogue, Destination, Objective, Pool, Promise, UseCase

__all__ = ["Catalogue", "Destination", "Objective", "Pool", "Promise", "UseCase"]
