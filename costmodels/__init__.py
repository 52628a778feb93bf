"""Machines and time: how long work and collectives take on a mesh of devices. Knows no shardings, imports no JAX."""

from costmodels.collectives import CollectiveKind
from costmodels.errors import ProfileError
from costmodels.load import list_profiles, load_profile
from costmodels.machine import AxisPart, CollectiveTime, Machine, Segment
from costmodels.place import place_mesh
from costmodels.profile import Profile

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
