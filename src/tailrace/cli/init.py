"""`tailrace init`: makes what a safe server needs for a trial: a configuration file, certificates, and an administrator.

It opens the data folder itself, as a server does, so no server may be running on it, and nobody can get in between: the server
that is started afterwards has its administrator already.
"""

import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.errors import CommandError, storage_failures

if TYPE_CHECKING:
    from tailrace.tls.authority import CertificateAuthority

CONFIGURATION_FILE = "tailrace.toml"
_TLS_FOLDER = "tls"
_PASSWORD_BYTES = 18
_HTTP_PORT = 8080
_KAFKA_PORT = 9092
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@storage_failures()
def init(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The data folder; created if it does not exist.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME",
            help="A name or address by which other machines reach the server; may be given several times. It listens for them.",
        ),
    ] = None,
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="The name of the administrator.")] = "root",
    password_file: Annotated[
        Path | None,
        typer.Option("--password-file", metavar="FILE", help="Write the password to this file instead of printing it."),
    ] = None,
    certificate: Annotated[
        str | None,
        typer.Option("--certificate", metavar="NAME", help="Only issue a certificate for a client, as the user of this name."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also in a folder with users or a configuration file, which gets new ones."),
    ] = False,
) -> None:
    """Prepare a data folder for a server with authentication and TLS.

    Makes a certificate authority and a certificate of the server in DIR/tls,
    an administrator whose password is printed once, and DIR/tailrace.toml. The
    authority is for a trial: its key lies beside the certificates. No server
    may be running on the folder, but with --certificate.

    [bold]Examples[/]
    tailrace init --data ./data
    tailrace init --data ./data --host events.example --host 10.0.0.7
    tailrace init --data ./data --password-file root.password
    tailrace init --data ./data --certificate billing
    """
    import os

    from tailrace.tls.authority import CertificateAuthority, check_names, write_private

    os.umask(0o077)
    folder = data.absolute()
    if certificate is not None:
        _issue_for_client(CertificateAuthority.open(folder / _TLS_FOLDER), certificate)
        return
    file = folder / CONFIGURATION_FILE
    if file.exists() and not force:
        raise CommandError(
            f"{file} is there already; use it with `tailrace serve --config {file}`, or pass --force to make it and the"
            " certificates anew"
        )
    hosts = list(dict.fromkeys(host or []))
    names = list(dict.fromkeys((*hosts, *_LOOPBACK_NAMES, *_own_name())))
    check_names(names)
    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    # First: it is refused if the folder is in use or has users, and nothing else is there then.
    make_administrator(folder, user, password, force=force)
    authority = CertificateAuthority.create(folder / _TLS_FOLDER)
    server_certificate, server_key = authority.issue_for_server(names)
    file.write_text(_configuration(folder, hosts, server_certificate, server_key, authority.file), encoding="utf-8")
    if password_file is not None:
        write_private(password_file, f"{password}\n".encode())
    typer.echo(_next_steps(file, hosts, user, password, password_file, authority.file, names))


def make_administrator(folder: Path, name: str, password: str, *, force: bool) -> None:
    """Write an administrator into the log of a folder that no server has open.

    Raises `CommandError` if it has users, unless `force`d; one of this name gets the password then.
    """
    import asyncio

    from tailrace.broker.broker import Broker
    from tailrace.model.clock import SystemClock
    from tailrace.model.security import ADMIN_ROLE
    from tailrace.store.embedded import EmbeddedStore

    async def write(store: EmbeddedStore) -> None:
        broker = Broker(store, SystemClock())
        await broker.start()
        try:
            known = [user.name for user in broker.users]
            if known and not force:
                raise CommandError(
                    f"{folder} has users already ({', '.join(known[:3])}{', ...' if len(known) > 3 else ''}); log in as one of"
                    " them, or pass --force to give the administrator a new password"
                )
            if name in known:
                await broker.users.set_password(name, password)
                await broker.users.grant_role(ADMIN_ROLE, name)
            else:
                await broker.users.create(name, password, roles=(ADMIN_ROLE,))
        finally:
            await broker.close()

    store = EmbeddedStore.open(folder)
    try:
        asyncio.run(write(store))
    finally:
        store.close()


def _issue_for_client(authority: "CertificateAuthority", name: str) -> None:
    certificate, key = authority.issue_for_client(name)
    typer.echo(
        f"""A client with these files is the user {name}:

    ssl.certificate.location = {certificate}
    ssl.key.location = {key}
    ssl.ca.location = {authority.file}

Nothing is granted to it yet. An administrator does that:

    CREATE USER {_sql_name(name)};
    GRANT CONSUME ON TOPIC orders TO {_sql_name(name)};"""
    )


def _own_name() -> list[str]:
    """Return the name of this machine, if it can stand in a certificate."""
    name = socket.gethostname()
    return [name] if name.isascii() and all(sign.isalnum() or sign in "-." for sign in name) and name else []


def _configuration(folder: Path, hosts: list[str], certificate: Path, key: Path, authority: Path) -> str:
    anywhere = "0.0.0.0" if hosts else "127.0.0.1"  # noqa: S104  asked for by --host
    listeners = [f'http = "{anywhere}:{_HTTP_PORT}"', f'kafka = "{anywhere}:{_KAFKA_PORT}"']
    if hosts:
        advertised = f"[{hosts[0]}]" if ":" in hosts[0] else hosts[0]
        listeners += [f"advertise = {_quoted(f'{advertised}:{_KAFKA_PORT}')}", "allow_remote = true"]
    return f"""# Written by `tailrace init`. All settings: docs/reference/configuration.md

[server]
data = {_quoted(folder)}
{chr(10).join(listeners)}

[security]
authentication = "required"
tls_certificate = {_quoted(certificate)}
tls_key = {_quoted(key)}
# Certificates of `tailrace init --certificate NAME` authenticate clients, as passwords and tokens do.
client_certificates = "accepted"
client_ca = {_quoted(authority)}
"""


def _next_steps(
    file: Path, hosts: list[str], user: str, password: str, password_file: Path | None, authority: Path, names: list[str]
) -> str:
    host = hosts[0] if hosts else "127.0.0.1"
    host = f"[{host}]" if ":" in host else host
    if password_file is None:
        shown, flag = f"The password of {user} is shown only now:\n\n    {password}", ""
    else:
        shown, flag = f"The password of {user} is in {password_file}.", f" --password-file {password_file}"
    return f"""Written: {file}, an authority and a certificate for {", ".join(names)} in {authority.parent},
and the administrator {user}. {shown}

Start the server:

    tailrace serve --config {file}

Log in, also from other machines that have a copy of {authority}:

    tailrace sql --server https://{host}:{_HTTP_PORT} --ca-file {authority} --user {user}{flag}

Properties of Kafka clients (of librdkafka; Java has the same ones in sasl.jaas.config and ssl.truststore.location):

    bootstrap.servers = {host}:{_KAFKA_PORT}
    security.protocol = SASL_SSL
    sasl.mechanism = SCRAM-SHA-512
    sasl.username = {user}
    sasl.password = (the password)
    ssl.ca.location = {authority}

A certificate for a client, instead of a password:

    tailrace init --data {file.parent} --certificate NAME"""


def _quoted(text: object) -> str:
    """Write text as TOML."""
    escaped = str(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _sql_name(name: str) -> str:
    return name if name.isidentifier() and name.islower() else '"' + name.replace('"', '""') + '"'
