"""Orders with the names and cities of their customers, and what each city has ordered."""

import millpond as mp


class Order(mp.Struct):
    """The key is the order's number."""

    customer: str
    item: str
    cents: int


class Customer(mp.Struct):
    """The key is the customer's number."""

    name: str
    city: str


class Shipment(mp.Struct):
    """An order with the address of its customer."""

    item: str
    cents: int
    name: str
    city: str


class Sales(mp.Struct, frozen=True):
    orders: int = 0
    cents: int = 0


def shipment(order: Order, customer: Customer) -> Shipment:
    return Shipment(order.item, order.cents, customer.name, customer.city)


def by_city(_order: str, sold: Shipment) -> tuple[str, Shipment]:
    return sold.city, sold


def add(_city: str, sold: Shipment, sales: Sales) -> Sales:
    return Sales(sales.orders + 1, sales.cents + sold.cents)


def subtract(_city: str, sold: Shipment, sales: Sales) -> Sales:
    return Sales(sales.orders - 1, sales.cents - sold.cents)


def orders() -> mp.Topology:
    builder = mp.StreamsBuilder()
    placed = builder.table("orders", key=mp.String, value=mp.Json(Order), store="orders")
    customers = builder.table("customers", key=mp.String, value=mp.Json(Customer), store="customers")
    shipments = placed.join(
        customers,
        shipment,
        on=lambda order: order.customer,  # the foreign key: a key of the other table
        name="shipments",
        store="shipments",
        value=mp.Json(Shipment),
    )
    shipments.to_stream().to("shipments", key=mp.String, value=mp.Json(Shipment))
    (
        shipments.group_by(
            lambda _order, sold: (sold.city, sold), key=mp.String, value=mp.Json(Shipment), name="by-city"
        )
        .aggregate(Sales, add, subtract, store="sales", value=mp.Json(Sales))
        .to_stream()
        .to("sales-by-city", key=mp.String, value=mp.Json(Sales))
    )
    return builder.build()
