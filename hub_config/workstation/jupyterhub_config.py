"""JupyterHub on one GPU server: the machine's own accounts log in, and everybody works as their own account.

`jupyter gpupool install workstation` puts this file at /etc/jupyterhub/jupyterhub_config.py; change it there.
"""

import grp
import os
import pwd

from jupyter_gpupool.hub import setup

c = get_config()  # noqa: F821

# Where people log in: over https with your certificate; without one only from this machine itself, which
# `ssh -L 8000:127.0.0.1:80 SERVER` makes http://127.0.0.1:8000 on theirs.
certificate, key = "/etc/jupyterhub/tls/certificate.pem", "/etc/jupyterhub/tls/key.pem"
if os.path.exists(certificate):
    c.JupyterHub.ssl_cert, c.JupyterHub.ssl_key = certificate, key
    c.JupyterHub.bind_url = "https://:443"
else:
    c.JupyterHub.bind_url = "http://127.0.0.1:80"

# Only root can listen on ports below 1024: nobody else can take one while the Hub restarts, and be sent
# passwords and tokens.
c.JupyterHub.hub_bind_url = "http://127.0.0.1:881"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:882"

# Who may log in: every account of this machine that has a password. Members of sudo administer the Hub.
c.JupyterHub.authenticator_class = "pam"
c.Authenticator.allow_all = True
c.PAMAuthenticator.admin_groups = {"sudo"}


def with_groups(authenticator, handler, login):
    """Put people into the Hub's groups by the machine's groups; a change holds from the next login on."""
    account = pwd.getpwnam(login["name"])
    login["groups"] = [grp.getgrgid(gid).gr_name for gid in os.getgrouplist(account.pw_name, account.pw_gid)]
    return login


c.Authenticator.manage_groups = True
c.Authenticator.post_auth_hook = with_groups

# Servers outlive the Hub, as jobs do: `systemctl restart jupyterhub` disturbs nobody.
c.JupyterHub.cleanup_servers = False
c.JupyterHub.allow_named_servers = True
c.Spawner.default_url = "/lab"

# Stays last. Members of sudo administer the pool too.
setup(
    c,
    managed=False,
    service_user="gpupool",
    home="/var/lib/gpupool/service",
    launcher="/var/lib/gpupool/launcher",
    token_file="/var/lib/gpupool/hub-token",
    admin_groups=["sudo"],
)
