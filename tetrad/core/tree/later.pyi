# What type checkers see of names that tetrad.core.tree finds later: made by `python -m tests.stubs`.
# ruff: noqa
# fmt: off
from typing import Any

from typing import Any as _KeyEntry
KeyEntry = _KeyEntry
KeyPath: Any
from tetrad.core.tree.tools import static as static
from tetrad.core.tree.tools import all as _tree_all
tree_all = _tree_all
from tetrad.core.tree.tools import broadcast as _tree_broadcast
tree_broadcast = _tree_broadcast
from tetrad.core.tree.paths import flatten_with_path as _tree_flatten_with_path
tree_flatten_with_path = _tree_flatten_with_path
from tetrad.core.tree.paths import leaves_with_path as _tree_leaves_with_path
tree_leaves_with_path = _tree_leaves_with_path
from tetrad.core.tree.paths import map_with_path as _tree_map_with_path
tree_map_with_path = _tree_map_with_path
from tetrad.core.tree.tools import reduce as _tree_reduce
tree_reduce = _tree_reduce
from tetrad.core.tree.tools import reduce_associative as _tree_reduce_associative
tree_reduce_associative = _tree_reduce_associative
from tetrad.core.tree.tools import transpose as _tree_transpose
tree_transpose = _tree_transpose
