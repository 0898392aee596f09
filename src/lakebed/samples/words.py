"""The made-up world of the samples: a shop whose customers wear rings, its services and what they
say. Plain data; orders matter, because the first entries are picked most often.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Service:
    """A program that sends telemetry."""

    name: str
    namespace: str | None
    language: str
    runtime: tuple[str, str]
    versions: tuple[str, ...]
    owner: str
    scopes: tuple[tuple[str, str], ...]
    operations: tuple[str, ...]
    instances: int


SERVICES = (
    Service(
        "storefront",
        "shop",
        "python",
        ("cpython", "3.13.7"),
        ("4.18.0", "4.17.2"),
        "www-data",
        (
            ("opentelemetry.instrumentation.flask", "0.66b1"),
            ("storefront.pages", "4.18.0"),
            ("urllib3", ""),
        ),
        ("GET /", "GET /product/{id}", "GET /search", "POST /cart", "GET /cart", "POST /checkout"),
        12,
    ),
    Service(
        "checkout",
        "shop",
        "go",
        ("go", "go1.26.1"),
        ("2.3.1",),
        "app",
        (("github.com/example/shop/checkout", "2.3.1"), ("otelgrpc", "0.69.0")),
        ("shop.Checkout/PlaceOrder", "shop.Checkout/Quote", "prepareOrder", "chargeCard"),
        4,
    ),
    Service(
        "payment",
        "shop",
        "nodejs",
        ("nodejs", "24.9.0"),
        ("1.9.4", "1.9.3"),
        "node",
        (("@opentelemetry/instrumentation-http", "0.210.0"), ("payment", "")),
        ("POST /charge", "POST /refund", "verify 3-D Secure"),
        3,
    ),
    Service(
        "inventory",
        "shop",
        "java",
        ("OpenJDK Runtime Environment", "25.0.1+8"),
        ("7.0.0-SNAPSHOT",),
        "jboss",
        (
            ("io.opentelemetry.jdbc", "2.22.0-alpha"),
            ("com.example.inventory.StockService", ""),
            ("io.opentelemetry.kafka-clients-2.6", "2.22.0-alpha"),
        ),
        ("GET /stock/{sku}", "SELECT stock.items", "UPDATE stock.items", "stock-changes process"),
        6,
    ),
    Service(
        "ring-sync",
        "devices",
        "rust",
        ("rust", "1.91.0"),
        ("0.12.0",),
        "ring",
        (("ring_sync::session", "0.12.0"), ("ring_sync::codec", "0.12.0")),
        ("sync", "decode frame", "PUT /v2/readings"),
        20,
    ),
    Service(
        "recherche-générale",
        "catalogue.é",
        "dotnet",
        (".NET", "10.0.0"),
        ("3.1.4",),
        "søk",
        (("Recherche.Générale", "3.1.4"), ("OpenTelemetry.Instrumentation.AspNetCore", "1.13.0")),
        ("GET /recherche/{terme}", "POST /索引"),
        2,
    ),
    Service(
        "cron",
        None,
        "python",
        ("cpython", "3.11.7"),
        ("1",),
        "root",
        (("__main__", ""),),
        ("nightly-report", "rotate-keys"),
        1,
    ),
    Service(
        "unknown_service:java",
        None,
        "java",
        ("OpenJDK Runtime Environment", "21.0.9"),
        ("",),
        "",
        (("", ""),),
        ("doWork",),
        1,
    ),
)

MESSAGES = (
    "{method} {route} → {status} in {millis} ms ({request})",
    "served {route} for {user} ({request})",
    "cache miss for key cart:{user} ({request})",
    "order {request} accepted: {count} items, total {money} €",
    "slow query: SELECT * FROM items WHERE sku = $1 took {millis} ms ({request})",
    "retrying {route} after {millis} ms, attempt {count} ({request})",
    "connection pool: {count} idle, {count2} busy",
    "heartbeat",
    "frame {request} decoded: {count} readings",
    "用户 {user} 登录成功 ({request})",
    "Benutzer {user} hat die Größe geändert – Ergebnis: „ok“",
    "🚚 parcel {request} left the warehouse 🏬",
    "تم تحديث المخزون {request}",
    "payment declined by issuer: code={status} ({request})",
    '{{"level":"info","request":"{request}","nested":{{"a":[1,2,{count}]}}}}',
    "line one\nline two\ttabbed\r\nline three \\ \"quoted\" 'single' ({request})",
    "",
    "zero\u0000byte and \u200b\ufeff invisible, e\u0301 combined ({request})",
)

LONG_PARAGRAPH = (
    "configuration reloaded; the effective values follow, defaults are marked with a star, secrets "
    "are not shown, and what differs from the previous reload is listed first: "
)

EVENT_NAMES = (
    "",
    "session.start",
    "session.end",
    "device.crash",
    "feature_flag.evaluation",
    "browser.web_vital",
    "购买.完成",
)

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD")
STATUSES = (200, 204, 302, 404, 500, 400, 503, 401, 429, 418)
USERS = tuple(f"user-{number:05d}" for number in range(400))
REGIONS = ("eu-west-1", "us-east-1", "ap-northeast-1", "sa-east-1", "af-south-1")
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
    "okhttp/5.3.0",
    "curl/8.17.0",
    "RingApp/3.2 (日本語; build 771)",
)

EXCEPTIONS = (
    (
        "TimeoutError",
        "the inventory did not answer within 250 ms",
        """Traceback (most recent call last):
  File "/srv/storefront/pages/product.py", line 118, in show
    stock = self.inventory.stock_of(sku, timeout=0.25)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/srv/storefront/clients/inventory.py", line 61, in stock_of
    raise TimeoutError("the inventory did not answer within 250 ms") from error
TimeoutError: the inventory did not answer within 250 ms
""",
    ),
    (
        "java.lang.IllegalStateException",
        "Stock below zero for SKU ß-1001",
        "java.lang.IllegalStateException: Stock below zero for SKU ß-1001\n"
        + "".join(
            f"\tat com.example.inventory.{name}({name.split('.')[0]}.java:{line})\n"
            for name, line in (
                ("StockService.reserve", 212),
                ("StockService.lambda$reserveAll$3", 187),
                ("Transactions.inTransaction", 44),
                ("StockResource.put", 97),
            )
        )
        + "\tat java.base/java.util.stream.ReferencePipeline$3$1.accept(Unknown Source)\n"
        + "\tat java.base/java.lang.Thread.run(Thread.java:1474)\n"
        + "Caused by: java.sql.SQLException: could not serialize access due to concurrent update\n"
        + "\t... 27 more\n",
    ),
    (
        "panic",
        "runtime error: index out of range [7] with length 7",
        """goroutine 4127 [running]:
main.(*Cart).Item(0xc000410a80, 0x7)
\t/src/checkout/cart.go:88 +0x1d
main.(*server).PlaceOrder(0xc0001aa000, {0x1f0a2c8, 0xc0004e2c60}, 0xc00031e180)
\t/src/checkout/server.go:141 +0x4b2
""",
    ),
    (
        "System.NullReferenceException",
        "Référence d'objet non définie",
        "   at Recherche.Générale.Index.Trouver(String terme) in /src/Index.cs:line 73\n"
        "   at Recherche.Générale.Page.<Afficher>d__12.MoveNext()\n",
    ),
)
