"""The demo's Hub: fifty developers in five groups on this machine's loopback interface.

`jupyter gpupool demo` sets the variables read here. Everybody's work runs as the account that started the
demo, so this is no example for a server; see hub_config/workstation for one.
"""

import os
from pathlib import Path

from jupyter_gpupool.hub import setup
from jupyter_gpupool.policy.load import load_policy

c = get_config()  # noqa: F821
folder = Path(os.environ["GPUPOOL_DEMO_DIR"])
port, hub_port, proxy_port = os.environ["GPUPOOL_DEMO_PORTS"].split(",")
site = load_policy(Path(__file__).with_name("policy.yaml").read_text())

c.JupyterHub.bind_url = f"http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{hub_port}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.pid_file = str(folder / "hub" / "proxy.pid")
c.JupyterHub.db_url = f"sqlite:///{folder / 'hub' / 'jupyterhub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(folder / "hub" / "cookie_secret")
c.JupyterHub.template_vars = {"announcement": os.environ["GPUPOOL_DEMO_ANNOUNCEMENT"]}

c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = os.environ["GPUPOOL_DEMO_PASSWORD"]
c.Authenticator.allowed_users = {name for group in site.groups.values() for name in group.members}
c.Authenticator.admin_users = {"admin"}
c.JupyterHub.load_groups = {name: {"users": list(group.members)} for name, group in site.groups.items()}
c.JupyterHub.allow_named_servers = True

c.Spawner.default_url = "/lab/tree/tour.ipynb"
c.GpuPoolLocalSpawner.home_dir_template = str(folder / "users" / "{username}")
if os.geteuid() == 0:
    c.Spawner.args = ["--allow-root"]

setup(
    c,
    home=folder / "home",
    simulate=os.environ.get("GPUPOOL_DEMO_POOL") or None,
    admins=["admin"],
    demo=True,
)
