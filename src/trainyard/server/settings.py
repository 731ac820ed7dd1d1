"""What can be set of a yard's server, read once by main."""

from dataclasses import dataclass
from datetime import timedelta

from trainyard.foundation.settings import setting
from trainyard.link.contract import CACHE_BYTES, ENVIRONMENTS_BYTES

PREFIX = "TRAINYARD_SERVER_"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Each field is also an environment variable: `TRAINYARD_SERVER_` and its name in capitals."""

    host: str = setting(
        "127.0.0.1", help="Address to bind to. Anything but a loopback address opens the yard to others."
    )
    port: int = setting(4780, help="Port of http; https listens on the next one.")
    hostnames: str = setting("", help="Further names under which clients reach this yard, separated by commas.")
    advertise: str = setting(
        "",
        help="Address by which instances on other machines reach this yard, such as http://10.0.0.1:4780; empty is the "
        "one that it listens on.",
    )
    region: str = setting("us-east-1", help="Region that `trainyard env` exports; calls for any region are accepted.")
    records: str = setting(
        "", help="Database URL, such as postgresql://user@host/name; empty is SQLite in the home folder."
    )
    objects: str = setting("", help="s3://bucket/prefix that keeps all objects; empty is a folder in the home folder.")
    objects_endpoint: str = setting("", help="Endpoint URL of that S3 where it is not Amazon's.")
    objects_region: str = setting("us-east-1", help="Region of that S3.")
    objects_access_key_id: str = setting("", help="Access key of that S3; empty takes the usual AWS sources.")
    objects_secret_access_key: str = setting("", help="Secret of that S3; best given by its variable.")
    objects_cache_bytes: int = setting(
        CACHE_BYTES,
        help="How much of that S3 is kept on disk: of the FastFile channels of a job, and of file systems for all.",
    )
    reserve_bytes: int = setting(
        0,
        help="How much of its disk the yard keeps free for its own records: uploads, results and programs that would "
        "use it are refused or ended. 0 is a twentieth of the disk, and at most 1 GiB.",
    )
    engines: str = setting(
        "local",
        help="What runs jobs: local, ray, container, or several of these separated by commas. The first runs all jobs "
        "that nothing sends to another one. `package.module:function` is an engine of your own.",
    )
    slots: int = setting(0, help="How many instances of jobs run at once on this machine; 0 is one for each core.")
    lease: timedelta = setting(
        timedelta(minutes=3),
        help="How long an instance on another machine runs on while it hears nothing of the yard, before it ends "
        "itself; only after that is a job whose machine is out of reach tried again elsewhere.",
    )
    ray_address: str = setting("auto", help="Address of the Ray cluster, host:6379; auto is one on this machine.")
    ray_token: str = setting("", help="Token of a Ray cluster that asks for one; best given by its variable.")
    ray_python: str = setting(
        "", help="Python with Ray in it, of the cluster's version, that speaks to the cluster; empty is the yard's own."
    )
    ray_folder: str = setting(
        "", help="Folder on the nodes of the cluster for what instances need; empty is one in the temporary folder."
    )
    container_tool: str = setting(
        "", help="podman or docker, by name or path, for the container engine; empty is the one that is there."
    )
    container_options: str = setting(
        "", help='Further options of its `run`, such as "--runtime runc --ulimit nproc=1000".'
    )
    strict: bool = setting(
        False, help="Refuse jobs whose instance type or image can only be had in part, instead of fitting them."
    )
    warm: bool = setting(True, help="Keep interpreters with their framework imported, so that jobs start at once.")
    warm_idle: timedelta = setting(
        timedelta(minutes=10), help="How long a warm worker is kept after its last job, unless a job asks for longer."
    )
    hang_after: timedelta = setting(
        timedelta(minutes=10),
        help="After how long without output and processor time of a job its stacks are shown; 0 is never.",
    )
    environments_limit_bytes: int = setting(
        ENVIRONMENTS_BYTES,
        help="How much of what its jobs installed is kept for each user; the longest unused goes first.",
    )
    inputs_kept: timedelta = setting(
        timedelta(days=30),
        help="How long `trainyard gc` keeps data that `trainyard run -i` uploaded, after the end of the last job that "
        "used it.",
    )
    smtp_url: str = setting(
        "",
        help="Mail server for the actions of rules, smtp://user:password@host:587 or smtps://…; empty sends no mail.",
    )
    smtp_from: str = setting("", help="Address that such mails come from.")
    sms_url: str = setting(
        "", help="URL that takes text messages as a JSON POST with `to`, `text` and `key`; empty sends none."
    )
    webhook_hosts: str = setting(
        "",
        help="Hosts that webhooks of rules may go to, such as hooks.slack.com,ops.example.com:8443; empty allows none.",
    )
    webhook_secret: str = setting("", help="Signs webhooks and text messages; best given by its variable.")
    action_commands: str = setting(
        "",
        help="Commands that rules may run by name: page=/usr/local/bin/page --team ml; ticket=/opt/ticket. They run as "
        "the yard does, with the finding as JSON on their input.",
    )
    action_timeout: timedelta = setting(timedelta(seconds=10), help="How long one try of an action of a rule may take.")
    action_patience: timedelta = setting(
        timedelta(hours=1), help="How long an action of a rule is tried again, at growing intervals."
    )
    threads: int = setting(32, help="Threads for blocking work: files, database.")
    body_limit_bytes: int = setting(
        32 * 1024 * 1024,
        help="Largest request body that is held in memory, whatever its operation takes; objects stream.",
    )
    keep_alive: timedelta = setting(
        timedelta(seconds=75),
        help="How long a connection stays open on which no request comes, or none ends its headers.",
    )
    log_level: str = setting("info", help="debug, info, warning or error.")
