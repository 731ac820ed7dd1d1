"""`trainyard login`, `logout` and `yards`: use a yard on another machine."""

import contextlib
import sys
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import click

from trainyard._sdk.connection import DEFAULT_REGION, Access, KeyPair
from trainyard._sdk.first_contact import (
    Greeting,
    bundle_with,
    fingerprint,
    greet,
    is_fingerprint,
    is_trusted,
    yard_url,
)
from trainyard._sdk.profiles import DEFAULT_PROFILE, LOCAL, PROFILE_VARIABLE, Profile, profiles_of
from trainyard._sdk.user_folders import cache_folder
from trainyard.cli.terminal.console import (
    CommandGroup,
    CommandWithExamples,
    ask,
    complete_profiles,
    environment,
    json_option,
    result_option,
    say,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.terminal.tables import print_table
from trainyard.foundation.errors import NotFound

SECRET_VARIABLE = "TRAINYARD_SECRET_ACCESS_KEY"

_PROFILE_FIELDS = ("Name", "Url", "User", "Account", "Region")

# The yard refuses signatures whose time differs by 15 minutes.
_MAX_CLOCK_DIFFERENCE = timedelta(minutes=14)


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard login https://gpu-box:4781          asks for the access key and the secret",
        "trainyard login gpu-box                       the same: https, and the port that yards use",
        "trainyard login gpu-box --profile lab         in addition to the profile of another yard",
        "trainyard login gpu-box --fingerprint 5A:… --access-key AKIA… --secret-stdin < secret.txt",
    ),
)
@click.argument("url")
@click.option(
    "--profile",
    "name",
    metavar="NAME",
    default=DEFAULT_PROFILE,
    show_default=True,
    help="Name of the profile to write, for users of several yards.",
)
@click.option("--access-key", metavar="ID", help="The access key. Default: it is asked for.")
@click.option(
    "--secret-stdin",
    is_flag=True,
    help=f"Read the secret from standard input. Default: ${SECRET_VARIABLE}, else it is asked for.",
)
@click.option(
    "--fingerprint",
    "expected",
    metavar="SHA256",
    help="The fingerprint of the yard's certificate authority, instead of the question whether it is right.",
)
@click.option("--region", metavar="REGION", help="The region. Default: that of the yard.")
@result_option(*_PROFILE_FIELDS)
def login(
    url: str,
    name: str,
    access_key: str | None,
    secret_stdin: bool,
    expected: str | None,
    region: str | None,
    as_json: JsonFields | None,
) -> None:
    """Log in to a yard on another machine, and use it from now on.

    `trainyard user add NAME`, on the machine of the yard, prints what to enter here. The login checks that the
    fingerprint of the yard's certificate authority is the one printed there, and then trusts that authority only. The
    keys are stored in a profile that only you can read; all commands, the SDK, `trainyard env` and `trainyard connect`
    use it.
    """
    profiles, address = profiles_of(environment()), yard_url(url)
    _require_no_other_yard(name, address)
    greeting = greet(address)
    _require_same_time(greeting, address)
    authority = _trusted_authority(address, greeting, expected)
    access_key = access_key or _ask("Access key", hidden=False, otherwise="--access-key ID")
    secret = _secret(from_stdin=secret_stdin)
    region = region or greeting.region or DEFAULT_REGION
    found = _identify(address, KeyPair(access_key, secret), region=region, authority=authority)
    stored = Profile(name, address, access_key, secret, region, found.user, found.account, found.role)
    profiles.save(stored, authority=authority, bundle=bundle_with(authority) if authority else b"")
    say(f'Logged in to {address} as "{found.user}", account {found.account}.')
    say(f'The keys are in the profile "{name}". `trainyard ls` lists your jobs there; `trainyard logout` forgets it.')
    if environment().get("AWS_ENDPOINT_URL"):
        say("AWS_ENDPOINT_URL is set in this shell; if it names another yard, commands use that one: unset it.")
    if environment().get("TRAINYARD_HOME"):
        say("TRAINYARD_HOME is set in this shell, so commands use the yard on this machine: unset TRAINYARD_HOME")
    if as_json:
        print_json(_profile_values(stored), as_json)


@click.command(
    cls=CommandWithExamples,
    examples=("trainyard logout", "trainyard logout lab"),
)
@click.argument("name", required=False, shell_complete=complete_profiles)
@result_option("Name", "Url")
def logout(name: str | None, as_json: JsonFields | None) -> None:
    """Forget a yard on another machine and its keys: the yard of the current profile, or of NAME."""
    profiles = profiles_of(environment())
    name = name or environment().get(PROFILE_VARIABLE) or profiles.current()
    if not name or name == LOCAL:
        raise Failure("You are not logged in to a yard.", next_step="trainyard yards ls", code=ExitCode.NOT_FOUND)
    url = profiles.load(name).url
    profiles.remove(name)
    say(f'Removed the profile "{name}" for {url}. Its keys still work; `trainyard user rm` on the yard ends them.')
    if as_json:
        print_json({"Name": name, "Url": url}, as_json)


@click.group(
    cls=CommandGroup,
    examples=("trainyard yards ls", "trainyard yards use lab", "trainyard yards use local"),
)
def yards() -> None:
    """Show the yards that you have logged in to, and choose one."""


@yards.command(name="ls", cls=CommandWithExamples, examples=("trainyard yards ls --json",))
@json_option
def list_profiles(as_json: JsonFields | None) -> None:
    """List the profiles. The current one has a star."""
    profiles = profiles_of(environment())
    current = environment().get(PROFILE_VARIABLE) or profiles.current()
    found = [profiles.load(name) for name in profiles.names()]
    if as_json:
        listed = [{**_profile_values(each), "Current": each.name == current} for each in found]
        print_json({"Profiles": listed}, as_json, items="Profiles")
        return
    if not found:
        say("There are no profiles; `trainyard login URL` makes one.")
        return
    rows = [("*" if each.name == current else "", each.name, each.url, each.user, each.account) for each in found]
    print_table(("", "profile", "yard", "user", "account"), rows)


@yards.command(cls=CommandWithExamples, examples=("trainyard yards use lab",))
@click.argument("name", shell_complete=complete_profiles)
@result_option("Name", "Url")
def use(name: str, as_json: JsonFields | None) -> None:
    """Use the yard of a profile from now on; `local` is the yard on this machine."""
    profiles = profiles_of(environment())
    try:
        profiles.use(name)
    except NotFound as error:
        known = ", ".join([*profiles.names(), LOCAL])
        raise Failure(error.message, why=f"The profiles are: {known}.", code=ExitCode.NOT_FOUND) from error
    url = None if name == LOCAL else profiles.load(name).url
    say(f"Commands use {url or 'the yard on this machine'}.")
    if as_json:
        print_json({"Name": name, "Url": url}, as_json)


def _profile_values(profile: Profile) -> dict[str, str]:
    values = (profile.name, profile.url, profile.user, profile.account, profile.region)
    return dict(zip(_PROFILE_FIELDS, values, strict=True))


def _require_no_other_yard(name: str, address: str) -> None:
    with contextlib.suppress(NotFound):
        known = profiles_of(environment()).load(name)
        if known.url != address:
            raise Failure(
                f'The profile "{name}" is for another yard, {known.url}.',
                next_step=f"the same command with --profile NAME, or trainyard logout {name}",
                code=ExitCode.USAGE,
            )


def _require_same_time(greeting: Greeting, address: str) -> None:
    ahead = greeting.clock_ahead
    if abs(ahead) < _MAX_CLOCK_DIFFERENCE:
        return
    minutes = round(abs(ahead).total_seconds() / 60)
    raise Failure(
        f"The clock of this machine is {minutes} minutes {'ahead of' if ahead > timedelta() else 'behind'} that of "
        f"{address}.",
        why="The yard refuses calls whose time differs by 15 minutes.",
        next_step="set the clock that is wrong, for example with timedatectl set-ntp true",
        code=ExitCode.AUTH,
    )


def _trusted_authority(address: str, greeting: Greeting, expected: str | None) -> bytes:
    """Return the authority that the user trusts; empty if the certificate is trusted anyway, or there is none."""
    if urlsplit(address).scheme == "http":
        if expected:
            raise click.UsageError("--fingerprint needs the https address of the yard.")
        say(f"Nobody checks who answers at {address}, and the data of jobs travels in the clear: better use https.")
        return b""
    if not is_trusted(address, greeting.authority):
        # A proxy in front of the yard has a certificate of its own.
        if expected is None and is_trusted(address):
            return b""
        raise Failure(
            f"The certificate of {address} is not signed by the authority that it names.",
            why="Something between this machine and the yard answers in its place, or the yard's certificate expired.",
            next_step="ask who runs the yard; do not enter your keys",
            code=ExitCode.AUTH,
        )
    found = fingerprint(greeting.authority)
    if expected is not None:
        if not is_fingerprint(expected, greeting.authority):
            raise Failure(
                f"The fingerprint of {address} is not the one that you gave.",
                why=f"It is {found}.",
                next_step="compare it with what `trainyard status` prints on the machine of the yard",
                code=ExitCode.AUTH,
            )
        return greeting.authority
    say(f"{address} is a yard of Trainyard {greeting.version}. The SHA-256 fingerprint of its authority:")
    say(f"  {found}")
    if not sys.stdin.isatty():
        raise Failure(
            "Nobody can compare the fingerprint, because there is no terminal.",
            next_step="trainyard login with --fingerprint and what `trainyard user add` printed",
            code=ExitCode.USAGE,
        )
    question = "Is this what `trainyard user add` or `trainyard status` printed on the machine of the yard?"
    ask(question)
    return greeting.authority


def _ask(what: str, *, hidden: bool, otherwise: str) -> str:
    if not sys.stdin.isatty():
        raise Failure(f"{what} is missing.", why="There is no terminal to ask for it.", next_step=otherwise)
    answer: str = click.prompt(what, hide_input=hidden, err=True)
    return answer.strip()


def _secret(*, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().strip()
    given = environment().get(SECRET_VARIABLE, "")
    return given or _ask("Secret access key", hidden=True, otherwise=f"--secret-stdin, or {SECRET_VARIABLE}")


@dataclass(frozen=True, slots=True)
class _Identity:
    """Whom a key pair belongs to, and the ARN of the role for the jobs of that user."""

    user: str
    account: str
    role: str


def _identify(address: str, keys: KeyPair, *, region: str, authority: bytes) -> _Identity:
    """Ask the yard whom the keys belong to."""
    from trainyard.wire.client import CallFailed

    with tempfile.TemporaryDirectory(prefix="trainyard-login-") as folder:
        trusted = Path(folder) / "ca.pem"
        trusted.write_bytes(authority)
        access = Access(
            address,
            keys.access_key_id,
            keys.secret_access_key,
            region,
            ca_bundle=trusted if authority else None,
            models=cache_folder(environment()) / "models",
            owns_models=True,
        )
        with contextlib.closing(access.client()) as client:
            try:
                caller = client.call("sts", "GetCallerIdentity")
                roles = client.call("iam", "ListRoles", MaxItems=1)["Roles"]
            except CallFailed as error:
                refusal = _REFUSALS.get(error.code, f"{address} refuses the login: {error.message}")
                raise Failure(
                    refusal.format(key=keys.access_key_id, url=address),
                    next_step="trainyard login again, with the keys that `trainyard user add` printed",
                    code=ExitCode.AUTH,
                ) from error
    user = caller["Arn"].rpartition("/")[2]
    return _Identity(user, caller["Account"], roles[0]["Arn"] if roles else "")


_REFUSALS = {
    "InvalidClientTokenId": '{url} does not know the access key "{key}".',
    "SignatureDoesNotMatch": 'The secret does not belong to the access key "{key}".',
    "IncompleteSignature": '"{key}" cannot be an access key.',
}
