import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { PoolClient, Send } from './api';
import { PoolPanel } from './panel';

const sidebar: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpupool:sidebar',
  description: "Shows the user's slices, quota and jobs, and the pool's queue, in the left sidebar.",
  autoStart: true,
  optional: [ILayoutRestorer, ITranslator],
  activate: (app: JupyterFrontEnd, restorer: ILayoutRestorer | null, translator: ITranslator | null) => {
    const client = new PoolClient(through(app.serviceManager.serverSettings));
    const panel = new PoolPanel(client, app.serviceManager.events, translator ?? nullTranslator);
    app.shell.add(panel, 'left', { rank: 900 });
    restorer?.add(panel, panel.id);
  }
};

/** The way to the pool through Jupyter Server. */
function through(settings: ServerConnection.ISettings): Send {
  return (path, init) =>
    ServerConnection.makeRequest(URLExt.join(settings.baseUrl, 'jupyter-gpupool', path), init, settings);
}

export default sidebar;
