"""What the engine gets wrong, and how that is kept from answers: refused, or not asked of it.

DataFusion 55 hands a condition that is left above a RIGHT JOIN, such as ``a.time IS NULL``, to the
files of the wrong side if they have a column of that name, and loses rows. The same as a LEFT JOIN
is right, whatever the condition.

It makes other mistakes with what it knows of whole files, and so is not allowed to learn it; which
files matter, the catalog says better. If their rows are in order, it merges them as far as a LIMIT,
but lets them be read in any order, or in part, and gives rows that are not the first. If a column
is the same in a whole file, a condition with IS NULL on it and with a list is not applied at all.
"""

from __future__ import annotations

from datafusion import LogicalPlan
from datafusion import expr as expressions

from lakebed.errors import BadSql


def require_sound_joins(plan: LogicalPlan) -> None:
    """Raise `BadSql` for what would be answered wrongly, in an optimized plan."""
    if _has_filtered_right_join(plan, filtered=False):
        raise BadSql(
            "the engine cannot apply this condition to what a RIGHT JOIN gives",
            hint="write it as a LEFT JOIN: FROM b LEFT JOIN a instead of FROM a RIGHT JOIN b",
        )


def _has_filtered_right_join(plan: LogicalPlan, *, filtered: bool) -> bool:
    node = plan.to_variant()
    if filtered and isinstance(node, expressions.Join) and str(node.join_type()) == "Right":
        return True
    below = filtered or isinstance(node, expressions.Filter)
    return any(_has_filtered_right_join(each, filtered=below) for each in plan.inputs())
