"""Builds a yard from its home folder and serves it until a signal stops it: `python -m trainyard.server.main`."""

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
from functools import partial
from pathlib import Path
from typing import Any

from trainyard import __version__
from trainyard.engines.catalog import Catalog
from trainyard.engines.contract import Engine
from trainyard.engines.file_systems import FileSystems
from trainyard.engines.images import Images
from trainyard.engines.selection import EngineRules
from trainyard.foundation.clock import utc_now
from trainyard.foundation.errors import NotFound, TrainyardError, Unavailable
from trainyard.foundation.hidden_paths import hidden_paths, outermost
from trainyard.foundation.journal import write_journal
from trainyard.foundation.settings import read_settings, setting_values
from trainyard.link.contract import ObjectsSpec
from trainyard.link.doorbell import Doorbell
from trainyard.link.warm import dismiss_workers
from trainyard.objects.contract import EncryptsObjects
from trainyard.server.addresses import advertised_address, advertised_host, reachable_address, unreachable_reason
from trainyard.server.app import AboutYard, App
from trainyard.server.control.actions.kind import RuleActionKind
from trainyard.server.control.controller import Controller, WakeSignal
from trainyard.server.control.experiments.job_components import JobComponentKind
from trainyard.server.control.experiments.metric_summaries import MetricSummaryKind
from trainyard.server.control.instances.demand import SchedulableInstanceJobs
from trainyard.server.control.instances.kind import InstanceJobKind
from trainyard.server.control.instances.views import JobViews
from trainyard.server.control.instances.yard_context import YardContext
from trainyard.server.control.lineage.kind import LineageKind
from trainyard.server.control.processing.specs import ProcessingSpecMaker
from trainyard.server.control.processing.work import ProcessingWork
from trainyard.server.control.profiling.conclusions import ProfileConclusions
from trainyard.server.control.profiling.kind import ProfileEvaluationKind
from trainyard.server.control.profiling.report_storage import ReportStorage
from trainyard.server.control.scheduling.scheduler import Scheduler
from trainyard.server.control.training.limits import WaitingLimitKind
from trainyard.server.control.training.specs import SpecMaker
from trainyard.server.control.training.work import TrainingWork
from trainyard.server.control.tuning.advisor import ProcessAdvisor, ProcessAnalyst, ProcessPruner
from trainyard.server.control.tuning.kind import TuningJobKind
from trainyard.server.control.tuning.work import TuningWork
from trainyard.server.dashboard.lazy import LazyDashboard
from trainyard.server.engines import open_engines, open_image_store
from trainyard.server.gateways import Gateways, parse_gateways
from trainyard.server.home import Credentials, Home, Runtime, lock_home, open_home
from trainyard.server.http.body import BodyIntake
from trainyard.server.http.certificates import ensure_certificates
from trainyard.server.http.connections import ConnectionTable, connection_limit
from trainyard.server.http.listeners import Listener, bind, listener, serve
from trainyard.server.identity import Identities
from trainyard.server.jobs import processing as processing_jobs
from trainyard.server.jobs import training as training_jobs
from trainyard.server.records.contract import Records
from trainyard.server.records.sql import open_records
from trainyard.server.services.contract import Compute, ServerFacts, Yard
from trainyard.server.services.sagemaker.tuning.trial_launch import TrainingJobLauncher
from trainyard.server.settings import PREFIX, ServerSettings
from trainyard.server.sign_in_links import create_link, sign_in_path
from trainyard.server.source_contents import SourceContents
from trainyard.server.storage import master_key_file, open_objects
from trainyard.server.streaming import Followers
from trainyard.server.tensors.reader import TensorReader
from trainyard.server.traces.reader import TraceReader
from trainyard.server.upkeep.retention import remove_expired_files
from trainyard.wire.models import Models
from trainyard.wire.routing import Router

log = logging.getLogger(__name__)

HOUSEKEEPING_INTERVAL = timedelta(minutes=10)

# The settings that the command line can override.
_COMMAND_LINE_SETTINGS = ("host", "port", "engines")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainyard.server.main", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--host", help="overrides the setting")
    parser.add_argument("--port", type=int, help="overrides the setting; 0 uses any two free ports")
    parser.add_argument("--engines", help="overrides the setting")
    options = parser.parse_args(arguments)
    given = {name: getattr(options, name) for name in _COMMAND_LINE_SETTINGS if getattr(options, name) is not None}
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
        # This module already logs the start and the stop.
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        wake_signal = WakeSignal()
        with _open_yard(home, settings, given, wake_signal=wake_signal) as yard:
            asyncio.run(_serve(home, settings, yard=yard, wake_signal=wake_signal))


@contextlib.contextmanager
def _open_yard(
    home: Home, settings: ServerSettings, given: Mapping[str, Any], *, wake_signal: WakeSignal
) -> Iterator[Yard]:
    with contextlib.ExitStack() as stack:
        records = open_records(settings.records or f"sqlite:///{home.records_file}")
        stack.callback(records.close)
        objects = open_objects(home, settings)
        stack.callback(objects.close)
        identities = Identities(records)
        _ensure_credentials(home, records, identities=identities, region=settings.region)
        engines = open_engines(home, settings)
        stack.callback(engines.close)
        compute = Compute(
            jobs=home.jobs,
            engines=engines,
            engine_rules=EngineRules(home.engines_file),
            containers=open_image_store(settings),
            catalog=Catalog.read(home.catalog_file),
            images=Images(home.images_file),
            file_systems=FileSystems(home.file_systems_file, cache=home.cache / "file_systems"),
            wake=wake_signal.send,
            gateways=_gateways(settings),
            strict=settings.strict,
            has_encrypted_disks=settings.disk_is_encrypted,
            # Instances reach a shared S3 without the yard.
            out_of_reach="" if settings.objects else unreachable_reason(settings),
            environments=home.environments,
            warm=home.warm,
            # A yard with its own database needs no name, so the machine may be renamed.
            site=f"{socket.gethostname()}:{home.root}" if settings.records else "",
        )
        followers = Followers(records, home.jobs)
        conclusions = ProfileConclusions(records, objects, compute.catalog, home.jobs, utc_now)
        stack.callback(conclusions.close)
        tensors = TensorReader(objects, home.cache / "tensors")
        stack.callback(tensors.close)
        analyst = ProcessAnalyst()
        stack.callback(analyst.close)
        traces = TraceReader(objects, home.cache / "traces")
        stack.callback(traces.close)
        yield Yard(
            records,
            objects,
            identities,
            home.logs,
            home.metrics,
            compute,
            followers,
            settings.reserve_bytes,
            conclusions=conclusions,
            own=_facts(home, given),
            tensors=tensors,
            analyst=analyst,
            traces=traces,
        )


def _facts(home: Home, given: Mapping[str, Any]) -> ServerFacts:
    settings = setting_values(
        ServerSettings, file=home.settings_file, environment=os.environ, prefix=PREFIX, command_line=given
    )
    return ServerFacts(home.server_log if _logs_to(home.server_log) else None, home.settings_file, tuple(settings))


def _logs_to(file: Path) -> bool:
    """Whether this process writes its log to a file. It may also go to a terminal or another log."""
    try:
        return os.path.samestat(os.fstat(sys.stderr.fileno()), file.stat())
    except (OSError, ValueError):
        return False


def _ensure_credentials(home: Home, records: Records, *, identities: Identities, region: str) -> None:
    """Write an administrator's keys where clients on this machine find them, unless valid ones are there."""
    key = identities.ensure_admin(now=utc_now())
    if key is None or _has_valid_credentials(home, records):
        return
    user = records.user(key.account)
    home.write_credentials(Credentials(user.account, user.name, user.role, key.id, key.secret, region))


def _sign_in_path(home: Home, records: Records) -> str:
    """Return the path of a link for the administrator whose keys are in the home folder; "" if there is none."""
    if not _has_valid_credentials(home, records):
        return ""
    return sign_in_path(create_link(records, home.credentials().account, now=utc_now()))


def _has_valid_credentials(home: Home, records: Records) -> bool:
    if not home.credentials_file.exists():
        return False
    try:
        records.access_key(home.credentials().access_key_id)
    except NotFound:
        return False
    return True


async def _serve(home: Home, settings: ServerSettings, *, yard: Yard, wake_signal: WakeSignal) -> None:
    names = [settings.host, *_hostnames(settings)]
    certificate = ensure_certificates(home, names, utc_now())
    http = bind(settings.host, settings.port)
    https = bind(settings.host, settings.port + 1 if settings.port else 0)
    models = Models(home.cache)
    router = Router(models, ["localhost", *names])
    with ThreadPoolExecutor(settings.threads, thread_name_prefix="yard") as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        about = AboutYard(settings.region, home.ca_file.read_bytes())
        bodies = BodyIntake()
        pages = LazyDashboard(yard, models, utc_now, bodies, region=settings.region, hosts=names)
        app = App(yard, router, utc_now, settings.body_limit_bytes, bodies=bodies, about=about, pages=pages)
        keep_alive_s = int(settings.keep_alive.total_seconds())
        table = ConnectionTable(connection_limit())
        plain = listener(app, table, keep_alive_s=keep_alive_s)
        secure = listener(
            app, table, keep_alive_s=keep_alive_s, certificate=certificate.certificate, key=certificate.key
        )
        _stop_on_signals([plain, secure], yard.followers, pages)
        runtime = Runtime.of_this_process(
            http=_address("http", http.getsockname()),
            https=_address("https", https.getsockname()),
            version=__version__,
            home=home.root,
            reachable=reachable_address(settings, https.getsockname()[1]),
            sign_in=_sign_in_path(home, yard.records),
        )
        # Both sockets listen already: a client that reads this file can connect, and is served once the loop runs.
        home.write_runtime(runtime)
        log.info("yard is open", extra={"http": runtime.http, "https": runtime.https})
        try:
            async with _run_controllers(home, settings, yard=yard, wake_signal=wake_signal, endpoint=runtime.http):
                # Objects from the start-up stay, so later collections need not scan them.
                gc.freeze()
                await serve([(plain, http), (secure, https)])
        finally:
            home.remove_runtime()
            log.info("yard is closed")


@contextlib.asynccontextmanager
async def _run_controllers(
    home: Home, settings: ServerSettings, *, yard: Yard, wake_signal: WakeSignal, endpoint: str
) -> AsyncIterator[None]:
    """Run the controllers of jobs, limits, evaluations and actions, and the housekeeping, until the block ends."""
    doorbell = _open_doorbell(home)
    context, scheduler = _yard_context(home, settings, endpoint=endpoint), _scheduler(yard)
    training = _training_work(home, yard, context=context, scheduler=scheduler)
    processing = _processing_work(home, yard, context=context, beside=training)
    worker = training.worker
    instances = Controller(InstanceJobKind([training, processing], doorbell), wake_signal)
    advisor, pruner = ProcessAdvisor(), ProcessPruner()
    tuning = Controller(TuningJobKind(_tuning_work(yard, worker=worker, pruner=pruner), advisor), wake_signal)
    limits = Controller(WaitingLimitKind(yard.records, utc_now, worker=worker))
    actions = Controller(_rule_actions(yard, worker=worker))
    profiles = _profile_evaluations(yard, worker=worker)
    evaluations = Controller(profiles)
    lineage = Controller(_lineage_recordings(yard, worker=worker))
    metrics = Controller(_metric_summaries(yard, worker=worker))
    components = Controller(JobComponentKind(yard.records, utc_now, worker=worker, site=yard.compute.site), wake_signal)
    ending = [
        asyncio.create_task(instances.run()),
        asyncio.create_task(tuning.run()),
        asyncio.create_task(limits.run()),
        asyncio.create_task(actions.run()),
        asyncio.create_task(evaluations.run()),
        asyncio.create_task(lineage.run()),
        asyncio.create_task(metrics.run()),
        asyncio.create_task(components.run()),
        *(asyncio.create_task(_make_ready(engine)) for engine in yard.compute.engines),
    ]
    housekeeping = asyncio.create_task(_run_housekeeping(yard, job_files_kept=settings.job_files_kept))
    try:
        yield
    finally:
        housekeeping.cancel()
        for controller in (tuning, instances, limits, actions, evaluations, lineage, metrics, components):
            controller.close()
        # Close them now, so that no step waits for their answer.
        for process in (advisor, pruner, profiles.conclusions):
            process.close()
        await asyncio.gather(*ending)
        if doorbell is not None:
            doorbell.close()
        await asyncio.to_thread(dismiss_workers, home.warm)


def _gateways(settings: ServerSettings) -> Gateways:
    return parse_gateways(
        smtp_url=settings.smtp_url,
        smtp_from=settings.smtp_from,
        sms_url=settings.sms_url,
        webhook_hosts=settings.webhook_hosts,
        webhook_secret=settings.webhook_secret,
        commands=settings.action_commands,
        timeout=settings.action_timeout,
        patience=settings.action_patience,
    )


def _rule_actions(yard: Yard, *, worker: str) -> RuleActionKind:
    compute = yard.compute
    return RuleActionKind(yard.records, compute.gateways, utc_now, worker=worker, wake=compute.wake)


def _profile_evaluations(yard: Yard, *, worker: str) -> ProfileEvaluationKind:
    assert yard.conclusions is not None, "this module opens the yard"
    return ProfileEvaluationKind(
        records=yard.records,
        conclusions=yard.conclusions,
        reports=ReportStorage(yard.objects),
        clock=utc_now,
        worker=worker,
        wake=yard.compute.wake,
        site=yard.compute.site,
    )


def _lineage_recordings(yard: Yard, *, worker: str) -> LineageKind:
    contents = SourceContents(yard.objects)
    return LineageKind(yard.records, contents, utc_now, worker=worker, site=yard.compute.site)


def _metric_summaries(yard: Yard, *, worker: str) -> MetricSummaryKind:
    return MetricSummaryKind(
        yard.records, yard.metric_inbox, yard.metrics, utc_now, worker=worker, site=yard.compute.site
    )


def _tuning_work(yard: Yard, *, worker: str, pruner: ProcessPruner) -> TuningWork:
    compute = yard.compute
    return TuningWork(
        records=yard.records,
        launcher=TrainingJobLauncher(yard),
        pruner=pruner,
        jobs=compute.jobs,
        clock=utc_now,
        worker=worker,
        site=compute.site,
        wake=compute.wake,
    )


def _yard_context(home: Home, settings: ServerSettings, *, endpoint: str) -> YardContext:
    return YardContext(
        endpoint,
        _objects_spec(home, settings),
        advertised=advertised_address(settings, endpoint),
        hidden=outermost((*hidden_paths(home.root), master_key_file(home, settings))),
        environments=home.environments,
        environments_limit_bytes=settings.environments_limit_bytes,
        warm=home.warm if settings.warm else None,
        warm_idle=settings.warm_idle,
        hang_after=settings.hang_after,
        doorbell=home.doorbell,
    )


def _objects_spec(home: Home, settings: ServerSettings) -> ObjectsSpec:
    if not settings.objects:
        return ObjectsSpec(
            str(home.objects),
            reserve_bytes=settings.reserve_bytes,
            keys=str(home.keys),
            master_key_file=str(master_key_file(home, settings)),
        )
    key = (settings.objects_access_key_id, settings.objects_secret_access_key, "")
    if not settings.objects_access_key_id:
        # Agents do not inherit the yard's environment. Without a key, they use the metadata service, as the yard does.
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


def _scheduler(yard: Yard) -> Scheduler:
    """Return the scheduler that all kinds of jobs with instances share."""
    compute = yard.compute
    return Scheduler(
        yard.records,
        compute.engines,
        {
            training_jobs.KIND: SchedulableInstanceJobs(
                training_jobs, yard.records, compute.catalog, utc_now, site=compute.site
            ),
            processing_jobs.KIND: SchedulableInstanceJobs(
                processing_jobs, yard.records, compute.catalog, utc_now, site=compute.site
            ),
        },
        utc_now,
        site=compute.site,
    )


def _training_work(home: Home, yard: Yard, *, context: YardContext, scheduler: Scheduler) -> TrainingWork:
    compute = yard.compute
    return TrainingWork(
        records=yard.records,
        identities=yard.identities,
        engines=compute.engines,
        catalog=compute.catalog,
        scheduler=scheduler,
        specs=SpecMaker(yard.objects, compute.images, compute.file_systems, context),
        views=JobViews(
            yard.records,
            jobs=home.jobs,
            logs=home.logs,
            metrics=home.metrics,
            log_group=training_jobs.LOG_GROUP,
            dimension=training_jobs.METRIC_DIMENSION,
        ),
        clock=utc_now,
        worker=f"{home.root}:{os.getpid()}",
        site=compute.site,
        runs_as_root=os.geteuid() == 0,
        is_strict=compute.strict,
    )


def _processing_work(home: Home, yard: Yard, *, context: YardContext, beside: TrainingWork) -> ProcessingWork:
    """Return the work on processing jobs, which shares the scheduler with that on training jobs."""
    compute = yard.compute
    return ProcessingWork(
        records=beside.records,
        identities=beside.identities,
        engines=beside.engines,
        catalog=beside.catalog,
        scheduler=beside.scheduler,
        specs=ProcessingSpecMaker(yard.objects, compute.images, compute.file_systems, context),
        views=JobViews(
            yard.records,
            jobs=home.jobs,
            logs=home.logs,
            metrics=home.metrics,
            log_group=processing_jobs.LOG_GROUP,
            dimension=processing_jobs.METRIC_DIMENSION,
        ),
        clock=beside.clock,
        worker=beside.worker,
        site=beside.site,
        runs_as_root=beside.runs_as_root,
        is_strict=beside.is_strict,
    )


async def _make_ready(engine: Engine) -> None:
    """Prepare an engine, so that the first job starts as fast as later ones. The yard does not wait for it."""
    try:
        await asyncio.to_thread(engine.make_ready)
    except Unavailable as error:
        # The first job reports the problem.
        log.warning("the engine could not be made ready", extra={"engine": engine.name, "why": error.message})


def _open_doorbell(home: Home) -> Doorbell | None:
    """Open the doorbell. None on a file system without FIFOs, where the yard polls for news of jobs."""
    try:
        return Doorbell(home.doorbell)
    except OSError as error:
        log.warning("agents cannot ring", extra={"why": error.strerror})
        return None


async def _run_housekeeping(yard: Yard, *, job_files_kept: timedelta) -> None:
    remove_files = partial(remove_expired_files, yard.compute.jobs, yard.records, kept=job_files_kept)
    while True:
        await asyncio.sleep(HOUSEKEEPING_INTERVAL.total_seconds())
        try:
            await asyncio.to_thread(yard.identities.forget_expired, now=utc_now())
            await asyncio.to_thread(remove_files, now=utc_now())
            if isinstance(yard.objects, EncryptsObjects):
                await asyncio.to_thread(yard.objects.keyring.destroy_due, now=utc_now())
        except TrainyardError:
            log.warning("housekeeping failed and will be retried", exc_info=True)


def _stop_on_signals(listeners: Sequence[Listener], followers: Followers, pages: LazyDashboard) -> None:
    def stop() -> None:
        # Otherwise these responses would not end before their jobs do, or before browsers leave.
        followers.close()
        pages.close()
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
