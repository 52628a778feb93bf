"""Rewriting StableHLO text from the refined mesh to the plan's own mesh: parts of axes become sub-axes.

JAX has no sub-axes, so programs are traced on a mesh that has each part of a split axis as an axis of its own. Shardy's
text has sub-axes: ``{"model:(1)2", "model:(2)2"}`` becomes ``{"model"}``, ``{"model:(2)2"}`` becomes
``{"model":(2)2}``.
"""

import re

from autoshard.errors import InputError
from autoshard.sharding.layout import AtomMesh


def on_logical_mesh(text: str, mesh: AtomMesh) -> str:
    """The module with the mesh of the plan in place of the refined one; `InputError` where the text declares neither.

    >>> from autoshard.sharding.mesh import Mesh
    >>> split = AtomMesh.split(Mesh.from_dict({"x": 2, "y": 4}), {"y": (2, 2)})
    >>> on_logical_mesh('sdy.mesh @mesh = <["x"=2, "y:(1)2"=2, "y:(2)2"=2]>\\n<@mesh, [{"x", "y:(1)2"}, {}]>', split)
    'sdy.mesh @mesh = <["x"=2, "y"=4]>\\n<@mesh, [{"x", "y":(1)2}, {}]>'
    """
    refined = "<[" + ", ".join(f'"{name}"={size}' for name, size in zip(mesh.names, mesh.sizes, strict=True)) + "]>"
    declared = re.compile(r"(sdy\.mesh @[\w.\"-]+ = )" + re.escape(refined) + r"(?: \{stablehlo\.mesh = [^\n]*\})?")
    text, meshes = declared.subn(lambda match: match[1] + str(mesh.mesh), text)
    if not meshes and "sdy.mesh" in text:
        raise InputError(f"the module declares no mesh {refined}, on which it should have been lowered")
    name = "(?:" + "|".join(re.escape(f'"{n}"') for n in sorted(mesh.names, key=len, reverse=True)) + ")"
    number = {f'"{n}"': atom for atom, n in enumerate(mesh.names)}

    def axes(match: re.Match[str]) -> str:
        return "{" + mesh.axes_text([number[n] for n in re.findall(name, match[0])]) + match[1] + "}"

    return re.sub(rf"\{{{name}(?:, {name})*((?:, \?)?)\}}", axes, text)
