"""The pages for administrators, and the actions of their forms."""

from __future__ import annotations

from collections.abc import Sequence

from lakebed.access.keys import Role
from lakebed.web.pages import admin as admin_page
from lakebed.web.pages import checking as checking_page
from lakebed.web.pages import keys as keys_page
from lakebed.web.pages import retired as retired_page
from lakebed.web.pages import retiring as retiring_page
from lakebed.web.pages import sweeping as sweeping_page
from lakebed.web.pages import unseen as unseen_page
from lakebed.web.routes import FormAction, Page, Read


def _page(name: str, path: str, read: Read, typed: Sequence[str] = ()) -> Page:
    return Page(name, path, read, typed=typed, role=Role.ADMIN, with_form=True)


_RETIRING = _page(
    "retiring",
    "/lake/partitions/{partition_id}/retire",
    lambda lake, request: retiring_page.read_retiring(lake, request.path["partition_id"]),
)
_UNSEEN = _page(
    "unseen",
    "/admin/incompatible/{view_set}",
    lambda lake, request: unseen_page.read_unseen(lake, request.path["view_set"]),
)
_SWEEP = _page("sweep", "/admin/sweep", lambda lake, _request: sweeping_page.read_sweep(lake))
_CHECK = _page("check", "/admin/check", lambda lake, _request: checking_page.read_check(lake))
_KEYS = _page("keys", "/admin/keys", lambda lake, _request: keys_page.read_keys(lake))
_REVOKING = _page(
    "revoking",
    "/admin/keys/{key_id}/revoke",
    lambda lake, request: keys_page.read_revoking(
        lake, request.path["key_id"], request.caller.name
    ),
)
ADMIN_PAGES = (
    _page(
        "admin",
        "/admin",
        lambda lake, request: admin_page.read_admin(lake, request.parameters),
        typed=admin_page.PARAMETERS,
    ),
    _RETIRING,
    _UNSEEN,
    _page(
        "retired",
        "/admin/retired",
        lambda lake, request: retired_page.read_retired(lake, request.parameters),
        typed=retired_page.PARAMETERS,
    ),
    _SWEEP,
    _CHECK,
    _KEYS,
    _REVOKING,
)
FORM_ACTIONS = (
    FormAction(
        "retire",
        _RETIRING.path,
        lambda lake, sent: retiring_page.retire(lake, sent.path["partition_id"], sent.fields),
        _RETIRING,
    ),
    FormAction(
        "restore",
        "/lake/partitions/{partition_id}/restore",
        lambda lake, sent: retiring_page.restore(lake, sent.path["partition_id"]),
    ),
    FormAction(
        "retire-incompatible",
        _UNSEEN.path,
        lambda lake, sent: unseen_page.retire_unseen(lake, sent.path["view_set"], sent.fields),
        _UNSEEN,
    ),
    FormAction("sweep-now", _SWEEP.path, lambda lake, _sent: sweeping_page.sweep(lake), _SWEEP),
    FormAction(
        "check-now",
        _CHECK.path,
        lambda lake, sent: checking_page.check_now(lake, sent.fields),
        _CHECK,
    ),
    FormAction(
        "create-key", _KEYS.path, lambda lake, sent: keys_page.create(lake, sent.fields), _KEYS
    ),
    FormAction(
        "revoke-key",
        _REVOKING.path,
        lambda lake, sent: keys_page.revoke(lake, sent.path["key_id"]),
        _REVOKING,
    ),
)
