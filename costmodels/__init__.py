"""Machines and time: how long work and collectives take on a mesh of devices. Knows no shardings, imports no JAX."""

from autoshard.costmodels.collectives import CollectiveKind
from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.load import list_profiles, load_profile
from autoshard.costmodels.machine import AxisPart, CollectiveTime, Machine, Segment
from autoshard.costmodels.place import place_mesh
from autoshard.costmodels.profile import Profile

__all__ = [
    "AxisPart",
    "CollectiveKind",
    "CollectiveTime",
    "Machine",
    "Profile",
    "ProfileError",
    "Segment",
    "list_profiles",
    "load_profile",
    "place_mesh",
]
