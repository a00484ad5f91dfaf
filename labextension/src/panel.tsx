import { PageConfig } from '@jupyterlab/coreutils';
import { Event } from '@jupyterlab/services';
import { ITranslator } from '@jupyterlab/translation';
import { VDomRenderer } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { PoolClient } from './api';
import { listen } from './events';
import { Format } from './format';
import { poolIcon } from './icon';
import { PoolModel } from './model';
import { Panel } from './view';

/** The sidebar's panel; it asks the pool only while it is in sight. */
export class PoolPanel extends VDomRenderer<PoolModel> {
  constructor(client: PoolClient, events: Event.IManager, translator: ITranslator) {
    super(new PoolModel(client, () => this.isVisible));
    this.unlisten = listen(events, event => this.model.hear(event));
    this.trans = translator.load('jupyter_gpupool');
    this.format = new Format(translator.languageCode);
    this.id = 'jupyter-gpupool:sidebar';
    this.title.icon = poolIcon;
    this.title.caption = this.trans.__('GPU pool');
    this.addClass('jp-gpupool-Panel');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', this.trans.__('GPU pool'));
    this.node.tabIndex = 0; // so that the keyboard can scroll it
  }

  dispose(): void {
    this.unlisten();
    this.model.dispose();
    super.dispose();
  }

  protected onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.model.refresh();
  }

  protected render(): JSX.Element {
    return (
      <Panel
        seen={this.model.seen}
        problem={this.model.problem}
        refusal={this.model.refusal}
        server={PageConfig.getOption('hubUser') ? PageConfig.getOption('hubServerName') : null}
        trans={this.trans}
        format={this.format}
        onRefresh={() => this.model.refresh()}
        onStart={() => void this.model.start()}
        onAct={(job, action) => void this.model.act(job.id, action)}
      />
    );
  }

  private readonly unlisten: () => void;
  private readonly trans: ReturnType<ITranslator['load']>;
  private readonly format: Format;
}
