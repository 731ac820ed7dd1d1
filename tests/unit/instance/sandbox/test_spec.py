from trainyard.instance.sandbox.spec import SandboxSpec, decode_spec, encode_spec


def test_a_spec_survives_encoding() -> None:
    spec = SandboxSpec(
        has_namespaces=True,
        argv=["python", "näme\udcff.py"],
        environment={"A": "1"},
        working_folder="/opt/ml",
        staging="/s",
        steps=[("bind", "writable", "/a", "/b"), ("seal", "/")],
        hostname="algo-1",
        uid=7,
        gid=8,
        cgroups=["/g"],
        original_cgroups=["/o"],
        max_processes=5,
        watchdog_memory_bytes=1 << 40,
    )
    assert vars(decode_spec(encode_spec(spec))) == vars(spec)
