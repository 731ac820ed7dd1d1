from trainyard.instance.sandbox.orders import Orders, decode, encode


def test_orders_arrive_as_they_were_given() -> None:
    orders = Orders(
        has_namespaces=True,
        argv=["python", "näme\udcff.py"],
        environment={"A": "1"},
        working_folder="/opt/ml",
        staging="/s",
        steps=[("bind", "writable", "/a", "/b"), ("seal", "/")],
        hostname="algo-1",
        uid=7,
        gid=8,
        groups=["/g"],
        origins=["/o"],
        most_processes=5,
        watched_memory=1 << 40,
    )
    assert vars(decode(encode(orders))) == vars(orders)
