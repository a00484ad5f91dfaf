"""What kernels do reaches the pool's service, which counts idleness by it."""

from __future__ import annotations

import asyncio
import os

import pytest

from jupyter_gpupool.server import activity


@pytest.fixture
def hub(service, monkeypatch):
    """The service is a Hub's, and this server one that the Hub has started."""
    url = f"{service.url}?uid={os.geteuid()}"
    names = {"GPUPOOL_URL": url, "GPUPOOL_HUB_URL": url, "JUPYTERHUB_API_TOKEN": "t0ken"}
    for name, value in {**names, "JUPYTERHUB_SERVER_NAME": "second"}.items():
        monkeypatch.setenv(name, value)
    return service


async def said(kernels, service):
    await activity.say(kernels)
    call = service.calls[-1]
    assert call.key == "POST activity"
    return call


async def test_a_kernel_is_busy_while_it_runs_a_cell(jp_serverapp, hub):
    kernels = jp_serverapp.kernel_manager
    assert (await said(kernels, hub)).json == {"server": "second", "kernels": []}
    id = await kernels.start_kernel(kernel_name="python3")
    client = kernels.get_kernel(id).client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=60)
        pid = kernels.get_kernel(id).provisioner.pid
        client.execute("import time; time.sleep(600)")
        while (await said(kernels, hub)).json["kernels"] != [{"pid": pid, "busy": True}]:
            await asyncio.sleep(0.05)
        await kernels.interrupt_kernel(id)
        while (await said(kernels, hub)).json["kernels"] != [{"pid": pid, "busy": False}]:
            await asyncio.sleep(0.05)
    finally:
        client.stop_channels()
        await kernels.shutdown_kernel(id)


async def test_it_is_said_with_the_servers_token(jp_serverapp, hub):
    assert (await said(jp_serverapp.kernel_manager, hub)).headers["Authorization"] == "token t0ken"


async def test_it_is_said_again_and_again(monkeypatch, hub, jp_configurable_serverapp, service):
    monkeypatch.setattr(activity, "EVERY_S", 0.02)
    jp_configurable_serverapp(config={"ServerApp": {"jpserver_extensions": {"jupyter_gpupool": True}}})
    while len([call for call in service.calls if call.key == "POST activity"]) < 2:
        await asyncio.sleep(0.02)


async def test_a_service_of_ones_own_hears_it_and_is_never_started_for_it(
    jp_serverapp, service, tmp_path, monkeypatch, found
):
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path))
    assert (await said(jp_serverapp.kernel_manager, service)).json["server"] is None
    service.stop()
    await activity.say(jp_serverapp.kernel_manager)
    assert found == []


async def test_a_pool_elsewhere_hears_nothing_of_the_kernels_here(jp_serverapp, service, monkeypatch):
    monkeypatch.setenv("GPUPOOL_URL", f"{service.url}?uid={os.geteuid()}")
    await activity.say(jp_serverapp.kernel_manager)
    assert service.calls == []
