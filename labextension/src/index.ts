import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { PoolClient } from './api';
import { PoolPanel } from './panel';

const sidebar: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpupool:sidebar',
  description: "Shows the user's quota, and when their jobs are expected to start, in the left sidebar.",
  autoStart: true,
  optional: [ILayoutRestorer, ITranslator],
  activate: (app: JupyterFrontEnd, restorer: ILayoutRestorer | null, translator: ITranslator | null) => {
    const client = new PoolClient(app.serviceManager.serverSettings);
    const panel = new PoolPanel(client, translator ?? nullTranslator);
    app.shell.add(panel, 'left', { rank: 900 });
    restorer?.add(panel, panel.id);
  }
};

export default sidebar;
