"""The actions of the shop's customers, and those of its services for them: chosen here at random;
`shop` reports them to OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

STOREFRONT, CATALOG, CART, PAYMENT, WAREHOUSE = SERVICES = (
    "storefront",
    "catalog",
    "cart",
    "payment",
    "warehouse",
)
PRODUCTS = ("kettle", "lamp", "notebook", "teapot", "umbrella")
_SLOW_SHARE, _DECLINED_SHARE, _LOST_SHARE = 0.10, 0.06, 0.04

Attributes = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Step:
    """The work of one service for a request, with its requests to other services."""

    service: str
    name: str
    milliseconds: float
    """Without the time of other services."""
    attributes: Attributes = field(default_factory=dict)
    calls: tuple[Step, ...] = ()
    says: tuple[tuple[str, str], ...] = ()
    """Severities and lines of its log records."""
    fails: str | None = None

    @property
    def route(self) -> str | None:
        return str(self.attributes["http.route"]) if "http.route" in self.attributes else None


def plan_visit(chance: Random) -> Step:
    """One request of a customer."""
    product = chance.choice(PRODUCTS)
    kind = chance.random()
    if kind < 0.5:
        return _look(chance, product)
    if kind < 0.75:
        return _put_in_cart(chance, product)
    return _check_out(chance, product)


def _page(method: str, route: str, status: int = 200) -> Attributes:
    return {
        "http.request.method": method,
        "http.route": route,
        "http.response.status_code": status,
    }


def _took(chance: Random, typical: float) -> float:
    return chance.lognormvariate(0, 0.4) * typical


def _query(chance: Random, service: str, statement: str) -> Step:
    attributes = {"db.system.name": "postgresql", "db.query.text": statement}
    return Step(service, statement.split(" ")[0], _took(chance, 4), attributes)


def _look(chance: Random, product: str) -> Step:
    lookup = Step(
        CATALOG,
        "find product",
        _took(chance, 6),
        {"shop.product": product},
        (_query(chance, CATALOG, "SELECT * FROM products WHERE name = $1"),),
        (("DEBUG", f"cache missed for {product}"),) if chance.random() < 0.3 else (),
    )
    route = "/products/{name}"
    return Step(STOREFRONT, f"GET {route}", _took(chance, 12), _page("GET", route), (lookup,))


def _put_in_cart(chance: Random, product: str) -> Step:
    count = chance.randint(1, 4)
    put = Step(
        CART,
        "put item",
        _took(chance, 5),
        {"shop.product": product, "shop.count": count},
        (_query(chance, CART, "INSERT INTO items VALUES ($1, $2)"),),
        (("INFO", f"{count} × {product} put into the cart"),),
    )
    return Step(STOREFRONT, "POST /cart", _took(chance, 10), _page("POST", "/cart"), (put,))


def _check_out(chance: Random, product: str) -> Step:
    euros = round(chance.uniform(8, 240), 2)
    read = Step(CART, "read cart", _took(chance, 5))
    paid = _pay(chance, euros)
    calls: tuple[Step, ...] = (read, paid)
    status, says, fails = 200, (("INFO", f"order of {euros} € accepted"),), None
    if paid.fails is not None:
        status, says, fails = (
            500,
            (("ERROR", "order failed: no answer to the payment"),),
            paid.fails,
        )
    elif paid.attributes["payment.outcome"] == "declined":
        status, says = 402, (("WARN", "order refused: the card was declined"),)
    else:
        calls += (Step(WAREHOUSE, "reserve", _took(chance, 9), {"shop.product": product}),)
    return Step(
        STOREFRONT,
        "POST /checkout",
        _took(chance, 18),
        _page("POST", "/checkout", status),
        calls,
        says,
        fails,
    )


def _pay(chance: Random, euros: float) -> Step:
    number = chance.random()
    took, outcome = _took(chance, 110), "paid"
    says: tuple[tuple[str, str], ...] = ()
    fails = None
    if number < _LOST_SHARE:
        took, outcome = 5000.0, "lost"
        fails = "the card company did not answer within 5 s"
        says = (("ERROR", fails),)
    elif number < _LOST_SHARE + _DECLINED_SHARE:
        outcome = "declined"
    elif number < _LOST_SHARE + _DECLINED_SHARE + _SLOW_SHARE:
        took = chance.uniform(1500, 4000)
        says = (("WARN", f"the card company took {took:.0f} ms"),)
    attributes: Attributes = {"payment.euros": euros, "payment.outcome": outcome}
    return Step(PAYMENT, "charge card", took, attributes, (), says, fails)
