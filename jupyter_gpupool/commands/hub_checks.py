"""What a Hub's pool needs on this server: the doctor's checks where the system runs the pool.

Owns: the checks of the account, folders, sockets, launcher, service, ports and Hub that the service's unit
names. Never: changes anything, or starts a service.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from jupyter_gpupool.client.address import UnixAddress
from jupyter_gpupool.client.errors import PoolError
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.client.peercred import peer_of
from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.commands.findings import Finding
from jupyter_gpupool.engines.local.cgroups import Subtree
from jupyter_gpupool.engines.local.identity import uid_min

UNITS = Path("/etc/systemd/system")
PRIVILEGED_PORTS = 1024
"""Below it, only root can listen."""
PATIENCE_S = 5.0


@dataclass(frozen=True)
class Site:
    """A pool that the system runs, as the unit of its service says.

    Attributes
    ----------
    program
        The service's program; servers and the Hub are in the same installation.
    account
        The name of the service's account.
    environment
        What the service is told.
    """

    program: Path
    account: str
    environment: dict[str, str]

    @classmethod
    def of(cls, units: Path) -> Site | None:
        """Read ``gpupool.service`` and what ``systemctl edit`` added; None where there is no such unit."""
        try:
            texts = [(units / "gpupool.service").read_text(encoding="utf-8")]
            texts += [path.read_text("utf-8") for path in sorted(units.glob("gpupool.service.d/*.conf"))]
        except OSError:
            return None
        lines = [line.partition("=") for text in texts for line in text.splitlines()]
        settings = {name: value for name, _, value in lines}
        told = [value.partition("=") for name, _, value in lines if name == "Environment"]
        return cls(
            Path(settings.get("ExecStart", "").split(" ")[0]),
            settings.get("User", "root"),
            {name: value for name, _, value in told},
        )

    @property
    def home(self) -> Path:
        """The service's state folder."""
        return Path(self.environment.get("GPUPOOL_HOME", ""))

    @property
    def launcher(self) -> Path:
        """The launcher's state folder."""
        return Path(self.environment.get("GPUPOOL_LAUNCHER") or self.home)

    @property
    def hub_socket(self) -> Path:
        """Where the service answers to the proxy and to servers."""
        return Path(self.environment.get("GPUPOOL_HUB_SOCKET") or Home(self.home).hub_socket)

    @property
    def api_url(self) -> str:
        """Where the Hub's API is."""
        return self.environment.get("JUPYTERHUB_API_URL", "")


def findings(site: Site) -> Iterator[Finding]:
    """Check everything, in the order in which the pool needs it."""
    yield program(site.program)
    try:
        account = pwd.getpwnam(site.account)
    except KeyError:
        remedy = "make it with: jupyter gpupool install workstation"
        yield Finding("account", "problem", f"this machine has no account {site.account!r}; {remedy}")
        return
    yield of_the_system(account)
    yield folder("home", site.home, account.pw_uid)
    yield folder("launcher's folder", site.launcher, 0)
    yield token(Path(site.environment.get("GPUPOOL_TOKEN_FILE", "")), account)
    yield launcher(site.launcher / "run" / "launcher.sock")
    yield control_groups(site.launcher)
    yield service(site.hub_socket, account.pw_uid)
    yield proxy(site.program)
    yield port(site.api_url)
    yield hub(site)


def program(path: Path) -> Finding:
    """Check that everybody can run what servers and jobs are made of, down to the Python itself."""
    for place in [path, *path.parents, *_python_of(path)]:
        try:
            mode = place.stat().st_mode
        except OSError as error:
            return Finding("program", "problem", f"{place}: {error.strerror}; install jupyter-gpupool there.")
        if not mode & stat.S_IXOTH:
            remedy = "install jupyter-gpupool in a folder that all can read, such as /opt/jupyterhub"
            return Finding("program", "problem", f"Other accounts cannot pass {place}: {remedy}.")
    return Finding("program", "ok", f"{path}, which all accounts can run.")


def _python_of(script: Path) -> list[Path]:
    """Return the interpreter that a script names in its first line, and the folders on the way to it."""
    try:
        with script.open("rb") as opened:
            first = opened.readline()
    except OSError:
        return []
    if not first.startswith(b"#!"):
        return []
    python = Path(os.fsdecode(first[2:].strip())).resolve()
    return [python, *python.parents]


def of_the_system(account: pwd.struct_passwd) -> Finding:
    """Check that the service's account is no person's, nor root."""
    if account.pw_uid == 0:
        return Finding("account", "problem", "The service's unit names no account, and root must not be it.")
    if account.pw_uid >= uid_min():
        text = f"{account.pw_name} (uid {account.pw_uid}) is a person's account; give the service its own."
        return Finding("account", "problem", text)
    return Finding("account", "ok", f"{account.pw_name}, uid {account.pw_uid}.")


def folder(subject: str, path: Path, owner: int) -> Finding:
    """Check that nobody else can write a folder, and that users can pass it on the way to their own files."""
    try:
        found = path.stat()
    except OSError as error:
        return Finding(
            subject, "problem", f"{path}: {error.strerror}; see jupyter gpupool install workstation."
        )
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != owner:
        text = f"{path} belongs to uid {found.st_uid}, not {owner}; mend it with: chown {owner} {path}"
        return Finding(subject, "problem", text)
    if mode & 0o022 or not mode & 0o001:
        return Finding(subject, "problem", f"{path} has mode {mode:04o}; mend it with: chmod 0711 {path}")
    return Finding(subject, "ok", f"{path}, mode {mode:04o}.")


def token(path: Path, account: pwd.struct_passwd) -> Finding:
    """Check that the service can read its token, and others cannot."""
    try:
        found = path.stat()
    except OSError as error:
        return Finding("token", "problem", f"{path}: {error.strerror}; the Hub makes it when it starts.")
    if found.st_mode & 0o007:
        return Finding("token", "problem", f"{path} is open to everybody; close it with: chmod o= {path}")
    if found.st_uid != account.pw_uid and not (found.st_gid == account.pw_gid and found.st_mode & 0o040):
        mend = f"chgrp {account.pw_name} {path} && chmod 0640 {path}"
        return Finding("token", "problem", f"{account.pw_name} cannot read {path}; mend it with: {mend}")
    return Finding("token", "ok", f"{path}, for {account.pw_name} alone.")


def launcher(path: Path) -> Finding:
    """Check that a launcher which root runs listens."""
    remedy = "start it with: systemctl start gpupool-launcher"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        try:
            connection.connect(str(path))
        except PermissionError:
            return Finding("launcher", "note", f"Only root and the service may ask {path}; use sudo.")
        except OSError as error:
            return Finding("launcher", "problem", f"{path}: {error.strerror}; {remedy}")
        uid = peer_of(connection).uid
    if uid != 0:
        text = f"uid {uid} listens on {path}: only root can start work as its users; {remedy}"
        return Finding("launcher", "problem", text)
    return Finding("launcher", "ok", f"root's, on {path}.")


def control_groups(launcher_home: Path) -> Finding:
    """Say what the life of servers and jobs depends on here."""
    if os.geteuid() != 0:
        return Finding("survival", "note", "Only root can see what servers and jobs depend on; use sudo.")
    found = Subtree.at(launcher_home).survival()
    return Finding("survival", "ok" if found.whole_tree else "note", found.sentence)


def service(path: Path, uid: int) -> Finding:
    """Ask the service; one that cannot open says why."""
    connection = Connection(str(UnixAddress(str(path), uid)), pauses=(), timeout=PATIENCE_S)
    try:
        reply = connection.request("GET", "whoami")
    except (PoolError, OSError) as error:
        return Finding("service", "problem", f"{error} Start it with: systemctl start gpupool")
    finally:
        connection.close()
    if reply.status >= 500:
        return Finding("service", "problem", str(PoolError.from_reply(reply.status, reply.body)))
    return Finding("service", "ok", f"answers on {path}, version {reply.headers.get('x-gpupool-version')}.")


def proxy(program: Path) -> Finding:
    """Look for the Hub's proxy, and what it runs on, where the Hub's unit looks."""
    prefix = program.parent.parent
    places = (prefix / "proxy/node_modules/.bin", prefix / "bin", Path("/usr/local/bin"), Path("/usr/bin"))
    path = os.pathsep.join(map(str, places))
    if shutil.which("node", path=path) is None:
        return Finding("proxy", "problem", "The Hub's proxy needs Node: install Node 20 or newer.")
    found = shutil.which("configurable-http-proxy", path=path)
    if found is None:
        remedy = f"npm install --prefix {prefix}/proxy configurable-http-proxy@5"
        return Finding("proxy", "problem", f"configurable-http-proxy is missing; install it with: {remedy}")
    return Finding("proxy", "ok", f"{found}.")


def port(api_url: str) -> Finding:
    """Check that nobody else could listen where the service sends its token."""
    parts = urlsplit(api_url)
    if parts.scheme == "http" and (parts.port or 80) >= PRIVILEGED_PORTS:
        text = (
            f"The Hub's API is at {api_url}: while the Hub is down, any user could listen there and be sent "
            f"tokens. Give c.JupyterHub.hub_bind_url a port below {PRIVILEGED_PORTS}."
        )
        return Finding("port", "problem", text)
    return Finding("port", "ok", f"{api_url}: no user can listen there.")


def hub(site: Site) -> Finding:
    """Ask the Hub whether it knows the service."""
    try:
        own = Path(site.environment["GPUPOOL_TOKEN_FILE"]).read_text(encoding="ascii").strip()
    except PermissionError:
        return Finding("hub", "note", "Only root can ask the Hub with the service's token; use sudo.")
    except (KeyError, OSError):
        return Finding("hub", "problem", "The service has no token to ask the Hub with.")
    parts = urlsplit(site.api_url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", f"{parts.path}/users?limit=1", headers={"Authorization": f"token {own}"})
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        remedy = "start it with: systemctl start jupyterhub"
        return Finding("hub", "problem", f"The Hub at {site.api_url} does not answer: {error}; {remedy}")
    finally:
        connection.close()
    if status != 200:
        what = f"The Hub at {site.api_url} does not know the service's token (HTTP {status})"
        return Finding("hub", "problem", f"{what}; restart it with: systemctl restart jupyterhub")
    return Finding("hub", "ok", f"answers at {site.api_url}, and knows the service.")
