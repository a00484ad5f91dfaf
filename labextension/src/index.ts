/**
 * The pool in JupyterLab: small plugins, each of which can be disabled by itself.
 */
import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Token } from '@lumino/coreutils';

import { PoolClient, Send } from './api';
import { IPoolEvent, listen } from './events';
import { Format } from './format';
import { Glance, telling } from './glance';
import { PANEL, PoolPanel } from './lab/panel';
import { StatusItem } from './lab/status';
import { IWords } from './words';

const DOMAIN = 'jupyter_gpupool';

/** The pool as other plugins have it: its client, and what one holds and waits for. */
export interface IPool {
  client: PoolClient;
  glance: Glance;
}

export const IPool = new Token<IPool>('jupyter-gpupool:IPool', "The GPU pool's client, and its state at a glance.");

const pool: JupyterFrontEndPlugin<IPool> = {
  id: 'jupyter-gpupool:pool',
  description: 'Knows the way to the GPU pool, and what its user holds and waits for.',
  autoStart: true,
  provides: IPool,
  activate: (app: JupyterFrontEnd): IPool => {
    const client = new PoolClient(through(app.serviceManager.serverSettings));
    const glance = new Glance(client);
    listen(app.serviceManager.events, event => glance.hear(event));
    return { client, glance };
  }
};

const sidebar: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpupool:sidebar',
  description: "Shows the user's slices, quota and jobs, and the pool's queue, in the left sidebar.",
  autoStart: true,
  requires: [IPool],
  optional: [ILayoutRestorer, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    { client }: IPool,
    restorer: ILayoutRestorer | null,
    translator: ITranslator | null
  ) => {
    const panel = new PoolPanel(client, app.serviceManager.events, wordsOf(translator));
    app.shell.add(panel, 'left', { rank: 900 });
    restorer?.add(panel, panel.id);
  }
};

const status: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpupool:status',
  description: 'Shows in the status bar what GPUs the user holds, and the place of their next job.',
  autoStart: true,
  requires: [IPool, IStatusBar],
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, { glance }: IPool, bar: IStatusBar, translator: ITranslator | null) => {
    const item = new StatusItem(glance, wordsOf(translator), () => app.shell.activateById(PANEL));
    bar.registerStatusItem('jupyter-gpupool:status', { item, align: 'left', rank: 100 });
  }
};

const notifications: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpupool:notifications',
  description: "Tells when one's job starts, ends, fails or is stopped, and before a session ends.",
  autoStart: true,
  requires: [IPool],
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, { glance }: IPool, translator: ITranslator | null) => {
    const words = wordsOf(translator);
    const tell = async (event: IPoolEvent) => {
      const told = telling(event, await glance.user(), words);
      if (told) {
        const autoClose = told.type === 'info' || told.type === 'success' ? 5000 : false;
        Notification.emit(told.text, told.type, { autoClose });
      }
    };
    listen(app.serviceManager.events, event => void tell(event));
  }
};

/** The way to the pool through Jupyter Server. */
function through(settings: ServerConnection.ISettings): Send {
  return (path, init) =>
    ServerConnection.makeRequest(URLExt.join(settings.baseUrl, 'jupyter-gpupool', path), init, settings);
}

function wordsOf(translator: ITranslator | null): IWords {
  const known = translator ?? nullTranslator;
  return { trans: known.load(DOMAIN), format: new Format(known.languageCode) };
}

export default [pool, sidebar, status, notifications];
