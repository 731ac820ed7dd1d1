"""Builds a yard from its home folder and serves it until it is told to stop: `python -m trainyard.server.main`."""

import argparse
import asyncio
import contextlib
import dataclasses
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from trainyard import __version__
from trainyard.engines.catalog import Catalog
from trainyard.engines.choosing import EngineRules
from trainyard.engines.contract import Engine
from trainyard.engines.file_systems import FileSystems
from trainyard.engines.images import Images
from trainyard.foundation.clock import utc_now
from trainyard.foundation.errors import NotFound, TrainyardError, Unavailable
from trainyard.foundation.hiding import hidden_places
from trainyard.foundation.journal import write_journal
from trainyard.foundation.settings import read_settings
from trainyard.link.contract import ObjectsSpec
from trainyard.link.doorbell import Doorbell
from trainyard.link.warm import leave_all
from trainyard.server.app import App
from trainyard.server.certificates import ensure_certificates
from trainyard.server.connections import ConnectionTable, connections_for_this_process
from trainyard.server.control.actions.work import ActionWork
from trainyard.server.control.bell import Bell
from trainyard.server.control.loop import TrainingLoop
from trainyard.server.control.showing import JobViews
from trainyard.server.control.specs import SpecMaker, Surroundings
from trainyard.server.control.training import TrainingWork
from trainyard.server.control.tuning.advisor import ProcessAdvisor, PrunerJudge
from trainyard.server.control.tuning.loop import TuningLoop
from trainyard.server.control.tuning.work import TuningWork
from trainyard.server.control.waiting import Waiting
from trainyard.server.engines import image_store, open_engines
from trainyard.server.following import Followers
from trainyard.server.gateways import Gateways, gateways_of
from trainyard.server.home import Credentials, Home, Runtime, lock_home, open_home
from trainyard.server.identity import Identities
from trainyard.server.listeners import Listener, bind, listener, serve
from trainyard.server.object_stores import open_objects
from trainyard.server.reach import advertised_address, advertised_host, why_out_of_reach
from trainyard.server.records.contract import Records
from trainyard.server.records.sql import open_records
from trainyard.server.services.contract import Workshop, Yard
from trainyard.server.services.sagemaker.tuning.launching import Launcher
from trainyard.server.settings import PREFIX, ServerSettings
from trainyard.wire.models import Models
from trainyard.wire.routing import Router

log = logging.getLogger(__name__)

HOUSEKEEPING = timedelta(minutes=10)

_GIVEN = ("host", "port", "engines")  # settings that the command line may give


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainyard.server.main", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--host", help="instead of the setting")
    parser.add_argument("--port", type=int, help="instead of the setting; 0 takes any two free ones")
    parser.add_argument("--engines", help="instead of the setting")
    options = parser.parse_args(arguments)
    given = {name: getattr(options, name) for name in _GIVEN if getattr(options, name) is not None}
    try:
        _run(options.home, given)
    except TrainyardError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _run(folder: Path, given: Mapping[str, Any]) -> None:
    home = open_home(folder)
    with lock_home(home):
        settings = read_settings(ServerSettings, file=home.settings_file, environment=os.environ, prefix=PREFIX)
        settings = dataclasses.replace(settings, **given)
        write_journal(sys.stderr, settings.log_level, file=home.server_log)
        logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its start and stop are told here already
        bell = Bell()
        with _open_yard(home, settings, bell=bell) as yard:
            asyncio.run(_serve(home, settings, yard=yard, bell=bell))


@contextlib.contextmanager
def _open_yard(home: Home, settings: ServerSettings, *, bell: Bell) -> Iterator[Yard]:
    with contextlib.ExitStack() as stack:
        records = open_records(settings.records or f"sqlite:///{home.records_file}")
        stack.callback(records.close)
        objects = open_objects(home, settings)
        stack.callback(objects.close)
        identities = Identities(records)
        _keep_credentials(home, records, identities=identities, region=settings.region)
        engines = open_engines(home, settings)
        stack.callback(engines.close)
        workshop = Workshop(
            jobs=home.jobs,
            engines=engines,
            engine_rules=EngineRules(home.engines_file),
            containers=image_store(settings),
            catalog=Catalog.read(home.catalog_file),
            images=Images(home.images_file),
            file_systems=FileSystems(home.file_systems_file, cache=home.cache / "file_systems"),
            wake=bell.ring,
            gateways=_gateways(settings),
            strict=settings.strict,
            # An S3 that all share is reached without the yard.
            out_of_reach="" if settings.objects else why_out_of_reach(settings),
            warm=home.warm,
            # A database of its own is found again by whatever name the machine has later.
            site=f"{socket.gethostname()}:{home.root}" if settings.records else "",
        )
        followers = Followers(records, home.jobs)
        yield Yard(records, objects, identities, home.logs, home.metrics, workshop, followers, settings.reserve_bytes)


def _keep_credentials(home: Home, records: Records, *, identities: Identities, region: str) -> None:
    """Write an administrator's keys where clients on this machine find them, unless good ones are there."""
    key = identities.first_start(now=utc_now())
    if key is None or _has_good_credentials(home, records):
        return
    user = records.user(key.account)
    home.write_credentials(Credentials(user.account, user.name, user.role, key.id, key.secret, region))


def _has_good_credentials(home: Home, records: Records) -> bool:
    if not home.credentials_file.exists():
        return False
    try:
        records.access_key(home.credentials().access_key_id)
    except NotFound:
        return False
    return True


async def _serve(home: Home, settings: ServerSettings, *, yard: Yard, bell: Bell) -> None:
    names = [settings.host, *_hostnames(settings)]
    certificate = ensure_certificates(home, names, utc_now())
    http = bind(settings.host, settings.port)
    https = bind(settings.host, settings.port + 1 if settings.port else 0)
    router = Router(Models(home.cache), ["localhost", *names])
    with ThreadPoolExecutor(settings.threads, thread_name_prefix="yard") as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        app = App(yard, router, utc_now, settings.body_limit_bytes)
        keep_alive_s = int(settings.keep_alive.total_seconds())
        table = ConnectionTable(connections_for_this_process())
        plain = listener(app, table, keep_alive_s=keep_alive_s)
        secure = listener(
            app, table, keep_alive_s=keep_alive_s, certificate=certificate.certificate, key=certificate.key
        )
        _stop_on_signals([plain, secure], yard.followers)
        runtime = Runtime.of_this_process(
            http=_address("http", http.getsockname()),
            https=_address("https", https.getsockname()),
            version=__version__,
            home=home.root,
        )
        # Both sockets listen already: who reads this file and connects is answered as soon as the loop runs.
        home.write_runtime(runtime)
        log.info("yard is open", extra={"http": runtime.http, "https": runtime.https})
        try:
            async with _jobs_moving(home, settings, yard=yard, bell=bell, endpoint=runtime.http):
                gc.freeze()  # what start-up made stays; later collections need not walk it
                await serve([(plain, http), (secure, https)])
        finally:
            home.remove_runtime()
            log.info("yard is closed")


@contextlib.asynccontextmanager
async def _jobs_moving(
    home: Home, settings: ServerSettings, *, yard: Yard, bell: Bell, endpoint: str
) -> AsyncIterator[None]:
    """Everything that goes on between calls, for the length of a block: jobs move, time limits pass, keys expire."""
    doorbell = _open_doorbell(home)
    work = _training_work(home, yard, surroundings=_surroundings(home, settings, endpoint=endpoint))
    training = TrainingLoop(work, bell, doorbell)
    advisor, judge = ProcessAdvisor(), PrunerJudge()
    tuning = TuningLoop(_tuning_work(yard, worker=work.worker, judge=judge), advisor, bell)
    ending = [
        asyncio.create_task(training.run()),
        asyncio.create_task(tuning.run()),
        *(asyncio.create_task(_make_ready(engine)) for engine in yard.workshop.engines),
    ]
    endless = [
        asyncio.create_task(_keep_house(yard)),
        asyncio.create_task(Waiting(yard.records, utc_now, worker=work.worker).watch()),
        asyncio.create_task(_action_work(yard, worker=work.worker).watch()),
    ]
    try:
        yield
    finally:
        for task in endless:
            task.cancel()
        tuning.close()
        training.close()
        for asked in (advisor, judge):  # so that no round waits for an answer
            asked.close()
        await asyncio.gather(*ending)
        if doorbell is not None:
            doorbell.close()
        await asyncio.to_thread(leave_all, home.warm)


def _gateways(settings: ServerSettings) -> Gateways:
    return gateways_of(
        smtp_url=settings.smtp_url,
        smtp_from=settings.smtp_from,
        sms_url=settings.sms_url,
        webhook_hosts=settings.webhook_hosts,
        webhook_secret=settings.webhook_secret,
        commands=settings.action_commands,
        timeout=settings.action_timeout,
        patience=settings.action_patience,
    )


def _action_work(yard: Yard, *, worker: str) -> ActionWork:
    workshop = yard.workshop
    return ActionWork(yard.records, workshop.gateways, utc_now, worker=worker, wake=workshop.wake)


def _tuning_work(yard: Yard, *, worker: str, judge: PrunerJudge) -> TuningWork:
    workshop = yard.workshop
    return TuningWork(
        records=yard.records,
        launcher=Launcher(yard),
        judge=judge,
        jobs=workshop.jobs,
        clock=utc_now,
        worker=worker,
        site=workshop.site,
        wake=workshop.wake,
    )


def _surroundings(home: Home, settings: ServerSettings, *, endpoint: str) -> Surroundings:
    return Surroundings(
        endpoint,
        _objects_spec(home, settings),
        advertised=advertised_address(settings, endpoint),
        hidden=hidden_places(home.root),
        environments=home.environments,
        environments_limit_bytes=settings.environments_limit_bytes,
        warm=home.warm if settings.warm else None,
        warm_idle=settings.warm_idle,
        hang_after=settings.hang_after,
        doorbell=home.doorbell,
    )


def _objects_spec(home: Home, settings: ServerSettings) -> ObjectsSpec:
    if not settings.objects:
        return ObjectsSpec(str(home.objects), reserve_bytes=settings.reserve_bytes)
    key = (settings.objects_access_key_id, settings.objects_secret_access_key, "")
    if not settings.objects_access_key_id:
        # Agents do not see the yard's environment. Without a key they ask this machine's metadata service, as it does.
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        key = (os.environ.get(names[0], ""), os.environ.get(names[1], ""), os.environ.get(names[2], ""))
    return ObjectsSpec(
        str(home.objects),
        url=settings.objects,
        endpoint=settings.objects_endpoint,
        region=settings.objects_region,
        access_key_id=key[0],
        secret_access_key=key[1],
        session_token=key[2],
        cache_bytes=settings.objects_cache_bytes,
        reserve_bytes=settings.reserve_bytes,
    )


def _training_work(home: Home, yard: Yard, *, surroundings: Surroundings) -> TrainingWork:
    workshop = yard.workshop
    return TrainingWork(
        records=yard.records,
        identities=yard.identities,
        engines=workshop.engines,
        catalog=workshop.catalog,
        specs=SpecMaker(yard.objects, workshop.images, workshop.file_systems, surroundings),
        views=JobViews(yard.records, jobs=home.jobs, logs=home.logs, metrics=home.metrics),
        clock=utc_now,
        worker=f"{home.root}:{os.getpid()}",
        site=workshop.site,
        runs_as_root=os.geteuid() == 0,
        is_strict=workshop.strict,
    )


async def _make_ready(engine: Engine) -> None:
    """Let the first job start as quickly as later ones; the yard itself does not wait for that."""
    try:
        await asyncio.to_thread(engine.make_ready)
    except Unavailable as error:  # then the first job is told
        log.warning("the engine could not be made ready", extra={"engine": engine.name, "why": error.message})


def _open_doorbell(home: Home) -> Doorbell | None:
    """None on a file system that has no FIFOs, where news of jobs are found a little later."""
    try:
        return Doorbell(home.doorbell)
    except OSError as error:
        log.warning("agents cannot ring", extra={"why": error.strerror})
        return None


async def _keep_house(yard: Yard) -> None:
    while True:
        await asyncio.sleep(HOUSEKEEPING.total_seconds())
        try:
            await asyncio.to_thread(yard.identities.forget_expired, now=utc_now())
        except TrainyardError:
            log.warning("housekeeping failed; it is tried again later", exc_info=True)


def _stop_on_signals(listeners: Sequence[Listener], followers: Followers) -> None:
    def stop() -> None:
        followers.close()  # whose answers would otherwise not end before their jobs do
        for server in listeners:
            server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def _hostnames(settings: ServerSettings) -> list[str]:
    names = [*settings.hostnames.split(","), advertised_host(settings)]
    return [name.strip() for name in names if name.strip()]


def _address(scheme: str, name: tuple[str, int]) -> str:
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"{scheme}://{host}:{name[1]}"


if __name__ == "__main__":
    sys.exit(main())
