import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { PoolClient } from './api';
import { PoolPanel } from './panel';

const sidebar: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpupool:sidebar',
  description: "Shows the user's slices, quota and jobs, and the pool's queue, in the left sidebar.",
  autoStart: true,
  optional: [ILayoutRestorer, ITranslator],
  activate: (app: JupyterFrontEnd, restorer: ILayoutRestorer | null, translator: ITranslator | null) => {
    const client = new PoolClient(app.serviceManager.serverSettings);
    const panel = new PoolPanel(client, app.serviceManager.events, translator ?? nullTranslator);
    app.shell.add(panel, 'left', { rank: 900 });
    restorer?.add(panel, panel.id);
  }
};

export default sidebar;
