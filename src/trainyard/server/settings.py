"""The settings of a yard's server. `main` reads them once."""

from dataclasses import dataclass
from datetime import timedelta

from trainyard.foundation.settings import setting
from trainyard.link.contract import CACHE_BYTES, ENVIRONMENTS_BYTES

PREFIX = "TRAINYARD_SERVER_"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The server settings. Each is also an environment variable: `TRAINYARD_SERVER_` and the name in capitals."""

    host: str = setting(
        "127.0.0.1", help="Address to bind to. Any address other than loopback opens the yard to other machines."
    )
    port: int = setting(4780, help="Port for http. https uses the next one.")
    hostnames: str = setting("", help="Additional host names of this yard, separated by commas.")
    advertise: str = setting(
        "",
        help="Address at which instances on other machines reach this yard, such as http://10.0.0.1:4780. Empty means "
        "the address that the yard listens on.",
    )
    region: str = setting(
        "us-east-1", help="Region that `trainyard env` exports. The yard accepts calls for any region."
    )
    records: str = setting(
        "",
        help="Database URL, such as postgresql://user@host/name. Empty means SQLite in the home folder.",
        is_secret=True,
    )
    objects: str = setting(
        "",
        help="s3://bucket/prefix that stores all objects; it needs the extra `trainyard[s3]`. Empty means a folder in "
        "the home folder.",
    )
    objects_endpoint: str = setting("", help="Endpoint URL of that S3, if it is not Amazon's.")
    objects_region: str = setting("us-east-1", help="Region of that S3.")
    objects_access_key_id: str = setting("", help="Access key for that S3. Empty means the usual AWS sources.")
    objects_secret_access_key: str = setting(
        "", help="Secret key for that S3. Best set by the environment variable.", is_secret=True
    )
    objects_cache_bytes: int = setting(
        CACHE_BYTES,
        help="Size of the disk cache for that S3: one per job for FastFile channels, and one for all file systems.",
    )
    reserve_bytes: int = setting(
        0,
        help="Disk space that the yard keeps free for its own records. It refuses uploads and results, and ends "
        "programs, that would use it. 0 means 5 % of the disk, at most 1 GiB.",
    )
    master_key_file: str = setting(
        "",
        help="File with the master key that unlocks the encryption keys of objects, such as one on another disk. Empty "
        "means keys/master.key in the home folder.",
    )
    disk_is_encrypted: bool = setting(
        False,
        help="Whether the disks on which jobs run are encrypted, by dm-crypt for example. Only then does the yard "
        "accept a VolumeKmsKeyId.",
    )
    engines: str = setting(
        "local",
        help="Engines that run jobs: local, ray, container, or several separated by commas. The first is the default. "
        "`package.module:function` names your own engine.",
    )
    slots: int = setting(0, help="Number of job instances that run at once on this machine. 0 means one per core.")
    lease: timedelta = setting(
        timedelta(minutes=3),
        help="How long an instance on another machine continues without contact to the yard before it ends itself. "
        "Only then does the yard retry the job elsewhere.",
    )
    ray_address: str = setting(
        "auto", help="Address of the Ray cluster, host:6379. auto means a cluster on this machine."
    )
    ray_token: str = setting(
        "", help="Token of a Ray cluster that requires one. Best set by the environment variable.", is_secret=True
    )
    ray_python: str = setting(
        "", help="Python that has Ray in the cluster's version and connects to it. Empty means the yard's own."
    )
    ray_folder: str = setting(
        "", help="Folder on the cluster nodes for the files of instances. Empty means one in the temporary folder."
    )
    container_tool: str = setting(
        "", help="podman or docker, by name or path, for the container engine. Empty means the one that is installed."
    )
    container_options: str = setting(
        "", help='Additional options for its `run` command, such as "--runtime runc --ulimit nproc=1000".'
    )
    strict: bool = setting(
        False, help="Refuse a job whose instance type or image is not fully available, instead of adapting the job."
    )
    warm: bool = setting(True, help="Keep interpreters ready with the framework imported, so that jobs start at once.")
    warm_idle: timedelta = setting(
        timedelta(minutes=10), help="How long a warm worker stays after its last job, unless a job asks for longer."
    )
    hang_after: timedelta = setting(
        timedelta(minutes=10),
        help="Time without output and processor use after which the yard shows the stacks of a job. 0 means never.",
    )
    environments_limit_bytes: int = setting(
        ENVIRONMENTS_BYTES,
        help="Disk space per user for packages that jobs installed. The longest unused are removed first.",
    )
    job_files_kept: timedelta = setting(
        timedelta(0),
        help="How long the logs, the points of metrics and other files of a job stay in the home folder after its end, "
        "such as 30d. The job itself stays until it is removed. 0 means that its files do, too.",
    )
    inputs_kept: timedelta = setting(
        timedelta(days=30),
        help="How long `trainyard gc` keeps data that `trainyard run -i` uploaded, after the last job that used it has "
        "ended.",
    )
    smtp_url: str = setting(
        "",
        help="Mail server for rule actions, smtp://user:password@host:587 or smtps://…. Empty disables mail.",
        is_secret=True,
    )
    smtp_from: str = setting("", help="Sender address of these mails.")
    sms_url: str = setting(
        "",
        help="URL that accepts text messages as a JSON POST with `to`, `text` and `key`. Empty disables them.",
        is_secret=True,
    )
    webhook_hosts: str = setting(
        "",
        help="Hosts that rule webhooks may call, such as hooks.slack.com,ops.example.com:8443. Empty allows none.",
    )
    webhook_secret: str = setting(
        "",
        help="Secret that signs webhooks and text messages. Best set by the environment variable.",
        is_secret=True,
    )
    action_commands: str = setting(
        "",
        help="Commands that rules may run by name: page=/usr/local/bin/page --team ml; ticket=/opt/ticket. They run as "
        "the user of the yard and get the finding as JSON on standard input.",
    )
    action_timeout: timedelta = setting(timedelta(seconds=10), help="Time limit for one try of a rule action.")
    action_patience: timedelta = setting(
        timedelta(hours=1), help="How long a failed rule action is retried, at growing intervals."
    )
    threads: int = setting(32, help="Threads for blocking work on files and the database.")
    body_limit_bytes: int = setting(
        32 * 1024 * 1024,
        help="Largest request body in memory, whatever the operation allows. Objects are streamed.",
    )
    keep_alive: timedelta = setting(
        timedelta(seconds=75),
        help="How long a connection stays open without a complete request head.",
    )
    log_level: str = setting("info", help="Log level: debug, info, warning or error.")
